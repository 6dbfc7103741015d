"""Checkpoints: what a run needs to go on after everything was killed, written so that a kill never spoils the last.

`checkpoints` is what a run uses, `store` the files, `state_serialization` what is in them, `earlier` what can be told
about them without MXNet. May import `algorithms`, `exchange`, `gluon`, `rules` and `runtime`.
"""
