"""The side of Gluon: a network as flat vectors (the replica), its optimizers on the host, and its random numbers.

`esync.trainer` is made of this. May import `algorithms`, `exchange`, `rules` and `runtime`.
"""
