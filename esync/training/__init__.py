"""The training loop of the worker program, its callbacks, logs and evaluations.

`loop` trains, `worker_setup` builds trainer, limits and callbacks from the flags, `round_callbacks`
calls the callbacks after each round, `checkpoint_evaluator` evaluates the checkpoints of a run from
outside. May import `algorithms`, `arguments`, `checkpoints`, `config`, `coordination`, `data`,
`exchange`, `membership`, `models`, `runtime`, `trainer` and `version`.
"""
