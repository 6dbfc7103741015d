"""The records of a training program, and the loop of the built-in one.

`run` is `esync.Run`, the records of any program; `loop` trains the built-in worker, which
`worker_setup` builds from its flags; `round_callbacks` calls the callbacks after each round;
`evaluation_process` evaluates in the background, `checkpoint_evaluator` from outside;
`unrecognized_classes` warns of classes without recall;
`estimator_handler` is for Gluon's Estimator. May import `algorithms`, `arguments`, `checkpoints`,
`config`, `coordination`, `data`, `exchange`, `gluon`, `loggers`, `membership`, `models`, `runtime`,
`trainer`, `trainer_callbacks` and `version`.
"""
