#!/usr/bin/env bash
# publish_badge.sh REPORT NAME [BRANCH] - put a report's badge.svg and badge.json on a branch of `origin`.
#
# The branch (default: badges) holds badges only, one folder a NAME. A badge is published whatever the
# verdict: a red one tells the truth too.
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: publish_badge.sh REPORT NAME [BRANCH]" >&2
  exit 2
fi
report=$(realpath "$1")
name=$2
branch=${3:-badges}
case "$name" in
  *[!A-Za-z0-9_.-]* | .*) echo "publish_badge.sh: '$name' is no folder name ([A-Za-z0-9_.-]+)" >&2; exit 2 ;;
esac
for file in badge.svg badge.json; do
  [ -f "$report/$file" ] || { echo "publish_badge.sh: $report holds no $file; is it a report folder?" >&2; exit 2; }
done

work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree" 2>/dev/null || true; rm -rf "$work"' EXIT
if git fetch --quiet origin "$branch" 2>/dev/null; then
  git worktree add --quiet --detach "$work/tree" FETCH_HEAD
else
  git worktree add --quiet --detach "$work/tree"
  git -C "$work/tree" checkout --quiet --orphan "$branch-$$"
  git -C "$work/tree" rm -rf --quiet --ignore-unmatch .
fi
mkdir -p "$work/tree/$name"
cp "$report/badge.svg" "$report/badge.json" "$work/tree/$name/"
cd "$work/tree"
git add "$name"
if git diff --cached --quiet; then
  echo "badge of $name unchanged on $branch"
  exit 0
fi
git -c user.name=torch-fl -c user.email=badges@torch-fl.invalid commit --quiet -m "Badge of $name"
git push --quiet origin "HEAD:refs/heads/$branch"
echo "badge of $name published on $branch"
