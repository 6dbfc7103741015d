"""The training loop of the worker program: batches in, rounds out; callbacks, logs and evaluations beside it.

`loop` is the loop, `worker_setup` makes everything that it needs out of the flags. May import whatever describes a
run: `arguments`, `algorithms`, `checkpoints`, `coordination`, `data`, `exchange`, `models`, `trainer`, `runtime`.
"""
