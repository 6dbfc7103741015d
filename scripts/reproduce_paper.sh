#!/usr/bin/env bash
# Reproduce the ESync paper's Figures 3, 4, 5 and Table 1 in virtual time:
#
#     scripts/reproduce_paper.sh [--full] [--parity] [...]
#     scripts/reproduce_paper.sh --horizon [--budget CORE-HOURS] [...]    # the paper's two hours, a narrow network
#
# The first takes about two hours on two cores. You can stop it at any time: started again, it goes on
# with the next run. Figures and table.md are in results/reproduction afterwards;
# docs/results/reproduction.md says how to read them.
set -euo pipefail
. "$(dirname "$0")/setup.sh" cpu
exec python benchmarks/reproduce_paper.py "$@"
