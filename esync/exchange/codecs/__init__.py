"""How the weights of a message are packed: on workers and on parameter servers."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...compression import TOP_K, Compression
from ..protocol.layout import Layout
from .packing import Packer, Unpacker


def packer_of(
    compression: Compression,
    layout: Layout,
    slots: int,
    rank: int,
    tensors: Sequence[int],
    common: Mapping[int, np.ndarray],
    steps: Sequence[int],
) -> Packer:
    """A worker's half.

    Args:
        compression: which way.
        layout: how the model is cut.
        slots: number of workers.
        rank: of this one.
        tensors: sizes of the tensors that the weights consist of.
        common: bucket index → its values, changed in place from now on.
        steps: times that the weights have changed on each server.
    """
    if compression.kind == TOP_K:
        from .packed_sparse import SparsePacker

        return SparsePacker(compression, layout, slots, rank, tensors, common)
    from .packed_buckets import BucketPacker

    return BucketPacker(compression, layout, tensors, common, steps)


def unpacker_of(compression: Compression, layout: Layout, slots: int, shard: int, tensors: Sequence[int]) -> Unpacker:
    """The half of server number `shard`; the other arguments as in `packer_of`."""
    if compression.kind == TOP_K:
        from .packed_sparse import SparseUnpacker

        return SparseUnpacker(compression, layout, slots, shard, tensors)
    from .packed_buckets import BucketUnpacker

    return BucketUnpacker(compression, layout, shard, tensors)
