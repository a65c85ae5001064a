#!/usr/bin/env bash
# gate.sh REPORT REGISTRY --plugin FILE [--plugin FILE...] [--key KEY] - hand a report in at a registry's gate.
#
# REPORT is a report folder, signed here with KEY, or an envelope that is signed already. The options are
# those of `torch-fl registry submit`. Exit: 0 accepted, 1 refused (the registry is unchanged), 2 usage.
set -euo pipefail

if [ $# -lt 3 ]; then
  echo "usage: gate.sh REPORT REGISTRY --plugin FILE [--key KEY]   (options: torch-fl registry submit --help)" >&2
  exit 2
fi
report=$1
registry=$2
shift 2
exec torch-fl registry submit "$report" --registry "$registry" "$@"
