"""What the benchmarks have in common; every other module of benchmarks/ is a program that answers one question.

figures: the JSON files of their results, and what is told of a target. processes: processes that are reaped.
clusters: small clusters of this machine. jobs: launched jobs that are watched from outside, and what their workers
log. simulations: many simulations that are one experiment. state_server: a state server to be asked. Nothing in here
imports a program.
"""
