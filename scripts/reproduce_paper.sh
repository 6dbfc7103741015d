#!/usr/bin/env bash
# Reproduce the tables and figures of the papers on ESync and DGS in virtual time, a command for each:
#
#     scripts/reproduce_paper.sh                          Figures 3, 4, 5 and Table 1, two epochs (2 hours on two cores)
#     scripts/reproduce_paper.sh horizon                  Figure 3, the paper's two hours, with a narrow network
#     scripts/reproduce_paper.sh table1                   Table 1, to an accuracy of 0.8, every round evaluated
#     scripts/reproduce_paper.sh alone                    against the fastest device alone
#     scripts/reproduce_paper.sh by-class                 data by class that stay where they are: seven methods, tuned
#     scripts/reproduce_paper.sh dgs                      DGS: Table 3
#     scripts/reproduce_paper.sh dgs-resnet               DGS: the same methods with a narrow ResNet-18
#     scripts/reproduce_paper.sh dgs-speedup              DGS: speedup by the number of workers
#
# Further words go to the experiment's program: --help says which there are, --list what each run costs, --budget
# how much is spent. dgs-speedup takes minutes and has neither. Those that take long can be stopped at
# any time: started again, they go on with the next run. docs/results/esync.md says how to read the results.
set -euo pipefail
case "${1-}" in
    "" | -*) words=(reproduce_paper.py) ;;
    horizon) words=(reproduce_paper.py --horizon) ;;
    table1) words=(time_to_accuracy.py) ;;
    alone) words=(fastest_device.py) ;;
    by-class) words=(data_by_class.py) ;;
    dgs) words=(sparse_accuracy.py) ;;
    dgs-resnet) words=(sparse_resnet.py) ;;
    dgs-speedup) words=(sparse_speedup.py) ;;
    *)
        echo "$0: '$1' is no experiment; expected one of: horizon table1 alone by-class dgs" \
            "dgs-resnet dgs-speedup, or none for Figures 3 to 5" >&2
        exit 2
        ;;
esac
if [[ ${1-} == dgs-speedup && " $*" =~ " --"(list|budget) ]]; then
    echo "$0: $1 takes minutes and has no --list and no --budget" >&2
    exit 2
fi
case "${1-}" in "" | -*) ;; *) shift ;; esac
. "$(dirname "$0")/setup.sh" cpu
exec python "benchmarks/${words[0]}" "${words[@]:1}" "$@"
