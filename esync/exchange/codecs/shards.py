"""Shards: what one server holds of the weights, and which entries of a sparse vector belong to it.

The buckets of a server lie one behind the other, so that its values have positions of their own,
from 0. Its *segments* are the tensors, cut where buckets end.
"""

from itertools import pairwise

import numpy as np

from ..protocol.layout import WEIGHTS, Layout
from .sparse import Sparse, join


class Shard:
    """What one server holds of the weights.

    Args:
        layout: how the model is cut.
        shard: number of the server.
        bounds: where each tensor begins in the weights, and where the last one ends.

    Attributes:
        size: values in all.
        buckets: those of the weights on this server, in order.
        offsets: where each of them begins here.
        bounds: where each segment begins here, and where the last one ends.
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

    def segments(self, place: int) -> list[int]:
        """The sizes of the segments in the bucket at this place of `buckets`."""
        first, last = self.offsets[place], self.offsets[place + 1]
        inside = self.bounds[(self.bounds >= first) & (self.bounds <= last)]
        return [int(size) for size in np.diff(inside)]

    def take(self, entries: Sparse) -> Sparse:
        """The entries of a sparse vector of all weights that belong here, at their places here."""
        indices, values = entries
        kept: list[Sparse] = []
        for bucket, offset in zip(self.buckets, self.offsets, strict=False):
            first, last = np.searchsorted(indices, (bucket.start, bucket.stop))
            kept.append((indices[first:last] + (offset - bucket.start), values[first:last]))
        return join(kept)

    def give(self, entries: Sparse) -> Sparse:
        """The inverse of `take`."""
        parts = [(indices + self.buckets[place].start, values) for place, (indices, values) in self.split(entries)]
        return join(parts)

    def split(self, entries: Sparse) -> list[tuple[int, Sparse]]:
        """The entries of each bucket, at their places in it; all buckets, by their places in `buckets`."""
        indices, values = entries
        edges = np.searchsorted(indices, self.offsets)
        return [
            (place, (indices[first:last] - self.offsets[place], values[first:last]))
            for place, (first, last) in enumerate(pairwise(edges))
        ]

    def unite(self, parts: list[Sparse]) -> Sparse:
        """The inverse of `split`, where there are parts of all buckets."""
        return join([(part[0] + offset, part[1]) for part, offset in zip(parts, self.offsets, strict=False)])
