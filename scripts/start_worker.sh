#!/usr/bin/env bash
# Start a worker on this machine, in the background:
#
#     scripts/start_worker.sh [flags of python -m esync.worker]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/start_role.sh
start_role worker esync.worker "$@"
