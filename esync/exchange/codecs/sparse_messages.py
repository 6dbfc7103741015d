"""Sparse messages to and from each server, and the keys of the pieces that they are cut into.

MXNet binds a key to the byte size of its first value. So every worker has keys of its own on every
server, behind those of all buckets and channels: one for each *size class*, powers of √2 of the
smallest one, and one for each further piece of the largest class. They carry messages both ways. A
message that is larger than the largest class goes in as many pieces of that class as it fills, and
one of the smallest class that holds the rest: the fewest pieces, and what padding adds to the last
one is at most 41 %.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from ... import config
from ..protocol.layout import WEIGHTS, Layout
from .base import GetBuffer, Packed
from .shards import Shard
from .sparse import Sparse, bounds_of
from .sparse.buffers import SparseMessage
from .sparse.message_format import Codec

#: MXNet finds a key's server by an int of 32 bits that holds key · 9973.
MOST_KEYS = 2**31 // 9973


@lru_cache
def classes(most: int, least: int = config.SPARSE_PIECE_ELEMENTS) -> tuple[int, ...]:
    """The sizes, ascending, in float32 values; the last one is `most`."""
    steps = max(0, math.ceil(2 * math.log2(most / least))) if most > least else 0
    return (*(math.ceil(least * 2 ** (step / 2)) for step in range(steps)), most)


def pieces(elements: int, most: int) -> list[int]:
    """The classes (numbers in `classes`) of the pieces of a message of so many float32 values, in order."""
    sizes = classes(most)
    full, rest = divmod(elements, most)
    last = [bisect_left(sizes, rest)] if rest or not full else []
    return [len(sizes) - 1] * full + last


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
        # A message is never much longer than all values; see `sparse.message_format`.
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
        SparseMessage.of([message]).pour(values for _, values in found)
        return found

    def key(self, rank: int, number: int, shard: int) -> int:
        """The key of the piece of that number of a worker."""
        return (self._first + rank * self._width + number) * self._servers + shard

    def locate(self, key: int) -> tuple[int, int] | None:
        """Rank and number of a key; None for a key that is none of these."""
        slot = key // self._servers - self._first
        rank, number = divmod(slot, self._width)
        return (rank, number) if slot >= 0 and rank < self._slots else None


class SparseMessages:
    """Turns sparse vectors of a whole model into the pieces of messages, and back, on a worker.

    Args:
        layout: how the model is cut.
        keys: of the pieces.
        tensors: sizes of the tensors that the weights consist of.
        values: "float32" or "float16", of the values on the wire.
        answers: kind of the servers' messages (`codec.KINDS`); None: as `values`.
    """

    def __init__(
        self, layout: Layout, keys: PieceKeys, tensors: Sequence[int], values: str, answers: str | None = None
    ) -> None:
        bounds = bounds_of(tensors)
        self.keys = keys
        self._shards = [Shard(layout, server, bounds) for server in range(layout.servers)]
        self._codecs = [Codec(shard.bounds, values) for shard in self._shards]
        self._answers = [Codec(shard.bounds, answers or values) for shard in self._shards]

    def write(self, step: Sparse, server: int) -> list[tuple[int, np.ndarray]]:
        """The pieces of the message to a server: number among the keys, and values (float32)."""
        return self.keys.cut(self._codecs[server].encode(self._shards[server].take(step)))

    def pack(self, step: Sparse, rank: int, first: int, buffer: GetBuffer) -> Iterator[Packed]:
        """Put the pieces of the messages to all servers into buffers; `first` is the place of a server's first one."""
        for server in range(len(self._shards)):
            for place, (number, values) in enumerate(self.write(step, server)):
                key = self.keys.key(rank, number, server)
                buffer(key, values.size)[:] = values
                yield Packed(server, key, first + place)

    def wanted(self, server: int, rank: int, length: int) -> list[tuple[int, int]]:
        """The pieces of a message of so many bytes: keys of a rank on that server, and sizes in float32 values."""
        pieces = self.keys.pieces(-(-length // 4)) if length else []
        return [(self.keys.key(rank, number, server), size) for number, size in pieces]

    def read(self, pieces: list[np.ndarray], length: int, server: int) -> Sparse:
        """What a message from a server says, in the places of the whole model.

        Raises:
            SparseError: the message is malformed.
        """
        return self._shards[server].give(self._answers[server].decode(united(pieces)[:length]))
