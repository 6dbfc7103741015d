"""Shards: the part of the weights on one server, and the entries of sparse vectors in it.

The buckets of a server are concatenated; positions in its shard count from 0. The *segments* of a
shard are the tensors, cut at the ends of buckets.
"""

import numpy as np

from ..protocol.layout import WEIGHTS, Layout
from .sparse import Sparse, join, split


class ServerShard:
    """The part of the weights that one server holds.

    Args:
        layout: how the model is cut into buckets.
        shard: number of the server.
        bounds: start of each tensor in the weights, and end of the last one.

    Attributes:
        size: number of values.
        buckets: of the weights on this server, in order.
        offsets: start of each bucket in the shard, and end of the last one.
        bounds: start of each segment in the shard, and end of the last one.
    """

    def __init__(self, layout: Layout, shard: int, bounds: np.ndarray) -> None:
        self.buckets = layout.of(WEIGHTS, shard)
        lengths = [bucket.stop - bucket.start for bucket in self.buckets]
        self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.size = int(self.offsets[-1])
        cuts = [
            bounds[(bounds >= bucket.start) & (bounds < bucket.stop)] - bucket.start + offset
            for bucket, offset in zip(self.buckets, self.offsets, strict=False)
        ]
        self.bounds = np.unique(np.concatenate([self.offsets, *cuts]))

    def segments(self, number: int) -> list[int]:
        """Return the sizes of the segments in `buckets[number]`."""
        first, last = self.offsets[number], self.offsets[number + 1]
        inside = self.bounds[(self.bounds >= first) & (self.bounds <= last)]
        return [int(size) for size in np.diff(inside)]

    def to_local(self, entries: Sparse) -> Sparse:
        """Return the entries of a sparse vector of all weights in this shard, with local indices."""
        indices, values = entries
        parts: list[Sparse] = []
        for bucket, offset in zip(self.buckets, self.offsets, strict=False):
            first, last = np.searchsorted(indices, (bucket.start, bucket.stop))
            parts.append((indices[first:last] + (offset - bucket.start), values[first:last]))
        return join(parts)

    def to_global(self, entries: Sparse) -> Sparse:
        """Return entries with indices in all weights; the inverse of `to_local`."""
        parts = zip(self.buckets, split(entries, self.offsets), strict=True)
        return join([(indices + bucket.start, values) for bucket, (indices, values) in parts])
