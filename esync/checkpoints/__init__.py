"""Checkpoints: what a run needs to go on after everything was killed.

They are written so that a kill never spoils the one before. `checkpoints` is what a run uses,
`store` the files on disk (without MXNet, so that launch can look at them, too), `contents` what is
in them, `state_serialization` the states of optimizers and algorithms as JSON and arrays, and
`lock` keeps a second run out. May import `algorithms`, `config`, `exchange`, `gluon`, `rules`,
`runtime` and `version`.
"""
