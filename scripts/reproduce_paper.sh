#!/usr/bin/env bash
# The ESync paper's Figures 3, 4, 5 and Table 1 in virtual time: scripts/reproduce_paper.sh [--full] [--parity] [...]
# Takes about two hours on two cores; stop it whenever you like and start it again, it goes on with the next run.
# Figures and table.md are in results/reproduction afterwards; docs/reproduction.md says how to read them.
set -euo pipefail
. "$(dirname "$0")/setup.sh" cpu
exec python benchmarks/reproduce_paper.py "$@"
