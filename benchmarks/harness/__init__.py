"""Common parts of the benchmarks.

Every other module of benchmarks/ is a program that answers one question.

* `program`, `figures`, `thinning`, `timing`: command line and exit code; JSON files of results, and
  tables; results with what is needed of them; ways that take turns, and medians.
* `clusters`, `jobs`, `state_server`: processes of this machine, none of which outlives its with
  statement: the parts of a cluster; a launcher that is watched from outside, and what its workers
  log; a state server, and queries of it.
* `simulations`: the runs of one experiment, several at a time, kept in one file; `budget`: what
  they cost; `held_out`: images to tune with; `paper_runs`: those of the ESync paper's experiments.
* `exchanges`, `perceptron`: what is exchanged and trained.

It imports the package and no program.
"""
