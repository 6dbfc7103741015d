#!/usr/bin/env bash
# Style, types and tests, with all the set-up they need: scripts/test.sh [--long] [pytest's own arguments]
# --long also runs the suites that take many minutes.
set -euo pipefail
. "$(dirname "$0")/setup.sh" cpu,dev

marker="not long"
if [ "${1:-}" = --long ]; then
    marker=""
    shift
fi

echo "== style"
ruff check .
ruff format --check .
echo "== types"
mypy
echo "== tests"
pytest -m "$marker" "$@"
