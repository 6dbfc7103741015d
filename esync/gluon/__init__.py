"""The Gluon side: a network as flat vectors (`replica`, `flat_arrays`), and its optimizers.

`optimizers` has faster and missing optimizers, `optimizer_to_rule` the rules by which servers take
their steps, `master_weights` the float32 copies of float16 weights, and `overlap_merge` the merge
of a common model that arrives late. `loader_batches` is the loop over a loader, `shard` a worker's
part of a data set, and `batch_sampler` has its batches by speed. `common_lr_scheduler` has learning
rate schedules that are the same on all workers, `randomness` seeds each iteration, and
`trainer_interface` is the type of gluon.Trainer.
`esync.trainer` is made of these. May import `algorithms`, `config`, `data`, `exchange`, `rules`,
`runtime` and `trainer_status`.
"""
