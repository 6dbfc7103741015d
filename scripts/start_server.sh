#!/usr/bin/env bash
# Start a server on this machine, in the background:
#
#     scripts/start_server.sh [flags of python -m esync.server]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/start_role.sh
start_role server esync.server "$@"
