"""Sparse messages and the cutting of a model: which entries go to which server, and which key carries a piece of them.

What one server holds of the weights, its buckets one behind the other, has places of its own, from 0. Its *segments*
are the tensors, cut where buckets end.

Keys. Every worker has keys of its own on every server, behind those of all buckets and channels: one for each size
class (see `sparse.sizes`), and one for each further piece of the largest class. They carry messages both ways.
"""

from itertools import pairwise

import numpy as np

from ..protocol.layout import WEIGHTS, Layout
from .sparse import Sparse, join
from .sparse.buffers import Message
from .sparse.sizes import classes, pieces

#: MXNet finds a key's server by an int of 32 bits that holds key · 9973.
MOST_KEYS = 2**31 // 9973


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


def united(pieces: list[np.ndarray]) -> np.ndarray:
    """The bytes of a message from its pieces, with the zeros behind them."""
    return np.concatenate([each.view(np.uint8) for each in pieces]) if pieces else np.empty(0, np.uint8)


class PieceKeys:
    """The keys of the pieces of sparse messages.

    Args:
        layout: how the model is cut.
        slots: number of workers.

    Attributes:
        most: float32 values of the largest piece, without the header in front of it.
    """

    def __init__(self, layout: Layout, slots: int) -> None:
        self.most = layout.bucket_elements
        self._servers, self._slots = layout.servers, slots
        self._first = layout.slots_of_channels(slots + 1)
        self._classes = len(classes(self.most))
        # A message is never much longer than all values; see `sparse.codec`.
        self._width = self._classes + 2 * -(-layout.sizes[WEIGHTS] // self.most)
        if layout.servers > 1 and self.key(slots, 0, 0) * layout.servers > MOST_KEYS:
            raise ValueError(f"{slots} workers with {layout.servers} servers need more keys than MXNet can tell apart")

    def pieces(self, elements: int) -> list[tuple[int, int]]:
        """How a message of so many float32 values is cut: for each piece its number among the keys, and its size."""
        sizes = classes(self.most)
        found = enumerate(pieces(elements, self.most))
        return [(each if each < self._classes - 1 else self._classes - 1 + at, sizes[each]) for at, each in found]

    def cut(self, message: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """The pieces of a message (uint8): number among the keys, and values (float32) with zeros behind them."""
        found = [(number, np.empty(size, np.float32)) for number, size in self.pieces(-(-message.size // 4))]
        Message.of([message]).pour(values for _, values in found)
        return found

    def key(self, rank: int, number: int, shard: int) -> int:
        """The key of the piece of that number of a worker."""
        return (self._first + rank * self._width + number) * self._servers + shard

    def locate(self, key: int) -> tuple[int, int] | None:
        """Rank and number of a key; None for a key that is none of these."""
        slot = key // self._servers - self._first
        rank, number = divmod(slot, self._width)
        return (rank, number) if slot >= 0 and rank < self._slots else None
