"""Compressed exchanges by top-k: sparse messages of the largest values up, the sparse mean back.

A worker sends the largest of what it has gathered, as in gradient dropping, through keys of its own. The answer is one
message for all workers, in keys that they share: the *new weights* at the places that have changed, not their
difference, so that nothing is rounded and nothing can be added twice. Where more has changed than all workers together
may have sent (momentum and weight decay on the server move every weight), or more than is wanted (`Compression.back`),
the answer has the places that have changed most, and the others stay for later.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from ...compression import Compression
from ...sparse import Sparse, bounds_of, check_finite, kernels
from ...sparse.codec import Codec
from ...sparse.compressors import GradientDropping
from ...sparse.selection import Selection, keep_count, top_k
from ..base import Model, Source
from ..protocol import wire
from ..protocol.layout import Layout
from .packing import Copies, Packed, Room, Total
from .shards import PieceKeys, Shard, join, united
from .sparse_messages import SparseMessages

#: Share of a segment from which its answer is dense, which takes 4 bytes a value instead of 5.
DENSE = 0.8


def first_place(layout: Layout) -> int:
    """The first place of a piece in a payload: behind those of the buckets of statistics."""
    return len(layout.buckets)


class SparsePacker:
    """A worker's half; see `packing.Packer`. Its memory: two vectors as long as the weights."""

    def __init__(
        self,
        compression: Compression,
        layout: Layout,
        slots: int,
        rank: int,
        tensors: Sequence[int],
        common: Mapping[int, np.ndarray],
    ) -> None:
        self._layout, self._rank, self._answers, self._common = layout, rank, slots, common
        self._messages = SparseMessages(layout, slots + 1, tensors, "float32")
        self._shards = [Shard(layout, shard, bounds_of(tensors)) for shard in range(layout.servers)]
        self._dropping = GradientDropping(Selection(tensors, compression.ratio))
        self._gathered = np.empty(layout.weights, np.float32)

    @property
    def rest(self) -> np.ndarray:
        """What has not been sent yet."""
        return self._dropping.rest

    def write(self, values: Source, room: Room) -> Iterator[Packed]:
        """See `packing.Packer.write`."""
        values.read(0, self._gathered.size, self._gathered)
        check_finite(self._gathered)
        step = self._dropping.compress(self._gathered, 1.0)
        for shard in range(self._layout.servers):
            for place, (number, part) in enumerate(self._messages.write(step, shard)):
                key = self._messages.keys.key(self._rank, number, shard)
                room(key, part.size)[:] = part
                yield Packed(shard, key, first_place(self._layout) + place)

    def wanted(self, shard: int, length: int) -> list[tuple[int, int]]:
        """See `packing.Packer.wanted`."""
        pieces = self._messages.wanted(length) if length else []
        return [(self._messages.keys.key(self._answers, number, shard), size) for number, size in pieces]

    def read(self, shard: int, arrays: Iterable[np.ndarray], length: int, model: Model) -> None:
        """See `packing.Packer.read`."""
        pieces = [array[wire.HEADER_ELEMENTS :] for array in arrays]
        indices, values = self._messages.read(pieces, length, shard) if length else join([])
        for bucket in self._shards[shard].buckets:
            common = self._common[bucket.index]
            first, last = np.searchsorted(indices, (bucket.start, bucket.stop))
            common[indices[first:last] - bucket.start] = values[first:last]
            model.write(False, bucket.start, common)


class SparseUnpacker:
    """The half of one server; see `packing.Unpacker`."""

    def __init__(
        self, compression: Compression, layout: Layout, slots: int, shard: int, tensors: Sequence[int]
    ) -> None:
        self._layout, self._answers, self._number = layout, slots, shard
        self._shard = Shard(layout, shard, bounds_of(tensors))
        self._codec = Codec(self._shard.bounds)
        self._keys = PieceKeys(layout, slots + 1)
        self._back = bool(compression.back)
        ratio = compression.back or compression.ratio
        self._most = [keep_count(int(stop - start), ratio) for start, stop in pairwise(self._shard.bounds)]

    def holds(self, key: int) -> bool:
        """See `packing.Unpacker.holds`."""
        return self._keys.locate(key) is not None

    def add(self, payload: Mapping[int, np.ndarray], total: Total, factor: float) -> None:
        """See `packing.Unpacker.add`."""
        if not payload:
            return
        entries = self._codec.decode(united([payload[place] for place in sorted(payload)]))
        for bucket, (_, (indices, values)) in zip(self._shard.buckets, self._shard.split(entries), strict=True):
            target, fresh = total(bucket.index, bucket.stop - bucket.start)
            if fresh:
                target.fill(0)
            kernels.add(target, indices, values * np.float32(factor))

    def answer(
        self, copies: Iterable[tuple[int, Copies]], payloads: int, room: Room
    ) -> tuple[list[tuple[int, int]], int]:
        """See `packing.Unpacker.answer`."""
        known = dict(copies)
        if not known:
            return [], 0
        kept = [known[bucket.index] for bucket in self._shard.buckets]
        changed = self._shard.unite([_difference(each) for each in kept])
        places = self._chosen(changed, payloads)
        sent = []
        for (exact, common), (_, (indices, _)) in zip(kept, self._shard.split((places, places)), strict=True):
            common[indices] = exact[indices]
            sent.append((indices, common[indices]))
        message = self._codec.message(self._shard.unite(sent))
        pieces = [
            (self._keys.key(self._answers, number, self._number), size)
            for number, size in self._keys.pieces(-(-message.size // 4))
        ]
        message.pour([room(key, size) for key, size in pieces])
        return [(key, place) for place, (key, _) in enumerate(pieces)], message.size

    def _chosen(self, changed: Sparse, payloads: int) -> np.ndarray:
        """The places that an answer has: of each segment those that have changed most, or all of them."""
        indices, values = changed
        edges = np.searchsorted(indices, self._shard.bounds)
        chosen = []
        for segment, (first, last) in enumerate(pairwise(edges)):
            start, stop = self._shard.bounds[segment], self._shard.bounds[segment + 1]
            most, found = self._most[segment] * (1 if self._back else payloads), indices[first:last]
            if min(most, found.size) >= DENSE * (stop - start):
                found = np.arange(start, stop)
            elif found.size > most:
                found = found[top_k(values[first:last], most)]
            chosen.append(found)
        return np.concatenate(chosen) if chosen else indices


def _difference(copies: Copies) -> Sparse:
    """Where and by how much the two differ."""
    exact, common = copies
    indices, values = np.empty(exact.size, np.int64), np.empty(exact.size, np.float32)
    found = kernels.difference_everywhere(exact, common, indices, values)
    return indices[:found].copy(), values[:found].copy()
