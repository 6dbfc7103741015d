"""The side of Gluon: a network as flat vectors (`replica`, `flat_arrays`), and its optimizers.

`optimizers` has faster and missing optimizers, `optimizer_to_rule` the rules by which servers take
their steps, `master_weights` the float32 copies of float16 weights, and `overlap_merge` the merge
of a common model that arrives late. `randomness` seeds each iteration. `esync.trainer` is made of
these. May import `algorithms`, `config`, `exchange`, `rules` and `runtime`.
"""
