#!/usr/bin/env bash
# try_torch.sh VERSION [FOLDER] - try this tree with another torch: build the bridge to it and run examples/smoke.py.
#
# Makes a virtual environment in FOLDER (default: torch-fl-with-VERSION below $TMPDIR; kept, and used again) with $PYTHON
# (default: python3). PyPI's torch brings CUDA libraries along, 6 GB of them;
# PIP_INDEX_URL=https://download.pytorch.org/whl/cpu PIP_EXTRA_INDEX_URL=https://pypi.org/simple does without.
# Exit: 0 the smoke test ran, 1 it or something before it failed, 2 usage, 3 too little room.
set -euo pipefail

if [ $# -lt 1 ]; then
  echo "usage: try_torch.sh VERSION [FOLDER]   (2.11 to 2.14)" >&2
  exit 2
fi
version=$1
tree=$(realpath "$(dirname "$0")/..")
folder=${2:-${TMPDIR:-/tmp}/torch-fl-with-$version}
python=$folder/bin/python

mkdir -p "$folder"
if ! "$python" -c "import torch; assert torch.__version__.split('+')[0] == '$version'" 2>/dev/null; then
  free=$(df --output=avail --block-size=1G "$folder" | tail -n 1)
  case ${PIP_INDEX_URL:-} in
    */cpu) needed=3 ;;
    *) needed=25 ;;
  esac
  if [ "$free" -lt "$needed" ]; then
    echo "try_torch.sh: $folder has $free GB free, and torch may need $needed while pip unpacks it" >&2
    exit 3
  fi
  "${PYTHON:-python3}" -m venv "$folder"
  "$python" -m pip install --quiet --no-cache-dir "torch==$version"
fi
"$python" -m pip install --quiet --no-cache-dir "$tree"

cd "$folder" # not in the tree, where Python would find the checkout
export TORCH_FL_CACHE=$folder/cache
"$folder/bin/torch-fl" build
"$python" "$tree/examples/smoke.py"
