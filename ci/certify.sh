#!/usr/bin/env bash
# certify.sh VENDOR [OPTION...] - certify one vendor's plugin, as a pipeline does.
#
# VENDOR is a vendor name, a kit folder or a plugin's .so; the options are those of `torch-fl certify`.
# Exit: 0 certified, 1 not certified, 2 usage or no plugin, 3 harness error, 130 interrupted.
set -euo pipefail

if [ $# -lt 1 ]; then
  echo "usage: certify.sh VENDOR [OPTION...]   (options: torch-fl certify --help)" >&2
  exit 2
fi
exec torch-fl certify "$@"
