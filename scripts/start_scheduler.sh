#!/usr/bin/env bash
# Start a scheduler on this machine, in the background:
#
#     scripts/start_scheduler.sh [flags of python -m esync.scheduler]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/start_role.sh
start_role scheduler esync.scheduler "$@"
