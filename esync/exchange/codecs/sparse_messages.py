"""Sparse messages to and from each server, and the keys of the pieces that they are cut into.

MXNet binds a key to the byte size of its first value. So every worker has keys of its own on every
server, behind those of all buckets and channels: one for each *size class*, powers of √2 of the
smallest one, and one for each further piece of the largest class. They carry messages both ways. A
message that is larger than the largest class goes in as many pieces of that class as it fills, and
one of the smallest class that holds the rest: the fewest pieces, and padding adds at most 41 % to
the last one.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from ... import config
from ..protocol.layout import WEIGHTS, Layout
from .base import GetBuffer, PackedArray
from .shards import ServerShard
from .sparse import Sparse, bounds_of
from .sparse.message_format import MessageFormat

#: MXNet finds a key's server by an int of 32 bits that holds key · 9973.
MOST_KEYS = 2**31 // 9973


@lru_cache
def size_classes(most: int, least: int = config.SPARSE_PIECE_ELEMENTS) -> tuple[int, ...]:
    """Return the size classes, ascending, in float32 values; the last one is `most`."""
    steps = max(0, math.ceil(2 * math.log2(most / least))) if most > least else 0
    return (*(math.ceil(least * 2 ** (step / 2)) for step in range(steps)), most)


def pieces(elements: int, most: int) -> list[int]:
    """Return the classes of the pieces of a message, in order, as numbers in `size_classes`.

    Args:
        elements: float32 values of the message.
        most: values of the largest class.
    """
    sizes = size_classes(most)
    full, rest = divmod(elements, most)
    last = [bisect_left(sizes, rest)] if rest or not full else []
    return [len(sizes) - 1] * full + last


def joined_pieces(pieces: list[np.ndarray]) -> np.ndarray:
    """Return the bytes of a message from its pieces, with the padding behind them."""
    return np.concatenate([piece.view(np.uint8) for piece in pieces]) if pieces else np.empty(0, np.uint8)


class PieceKeys:
    """The keys of the pieces of sparse messages.

    Args:
        layout: how the model is cut into buckets.
        slots: number of workers.

    Attributes:
        most: float32 values of the largest piece, without the header in front of it.
    """

    def __init__(self, layout: Layout, slots: int) -> None:
        self.most = layout.bucket_elements
        self._servers, self._slots = layout.servers, slots
        self._first = layout.slots_of_channels(slots + 1)
        self._classes = len(size_classes(self.most))
        # A message is never much longer than all values; see `sparse.message_format`.
        self._width = self._classes + 2 * -(-layout.sizes[WEIGHTS] // self.most)
        if layout.servers > 1 and self.key(slots, 0, 0) * layout.servers > MOST_KEYS:
            raise ValueError(f"{slots} workers with {layout.servers} servers need more keys than MXNet can tell apart")

    def pieces(self, elements: int) -> list[tuple[int, int]]:
        """Return how a message of that many float32 values is cut.

        Returns:
            For each piece its number among the keys, and its size.
        """
        sizes = size_classes(self.most)
        found = enumerate(pieces(elements, self.most))
        return [(each if each < self._classes - 1 else self._classes - 1 + at, sizes[each]) for at, each in found]

    def key(self, rank: int, number: int, shard: int) -> int:
        """Return the key of the piece of that number of a worker."""
        return (self._first + rank * self._width + number) * self._servers + shard

    def locate(self, key: int) -> tuple[int, int] | None:
        """Return rank and number of a key; None for a key that is none of these."""
        slot = key // self._servers - self._first
        rank, number = divmod(slot, self._width)
        return (rank, number) if slot >= 0 and rank < self._slots else None


class SparseMessages:
    """Turns sparse vectors of a whole model into the pieces of messages, and back, on a worker.

    Args:
        layout: how the model is cut into buckets.
        keys: of the pieces.
        tensors: sizes of the tensors that the weights consist of.
        values: "float32" or "float16", of the values on the wire.
        answers: kind of the servers' messages (`message_format.KINDS`).
    """

    def __init__(self, layout: Layout, keys: PieceKeys, tensors: Sequence[int], values: str, answers: str) -> None:
        bounds = bounds_of(tensors)
        self.keys = keys
        self._shards = [ServerShard(layout, server, bounds) for server in range(layout.servers)]
        self._formats = [MessageFormat(shard.bounds, values) for shard in self._shards]
        self._answers = [MessageFormat(shard.bounds, answers) for shard in self._shards]

    def pack(self, step: Sparse, rank: int, buffer: GetBuffer) -> Iterator[PackedArray]:
        """Put the pieces of the messages to all servers into buffers."""
        for server, (shard, message_format) in enumerate(zip(self._shards, self._formats, strict=True)):
            message = message_format.message(shard.to_local(step))
            pieces = self.wanted(server, rank, message.size)
            message.pour([buffer(key, size) for key, size in pieces])
            for place, (key, _) in enumerate(pieces):
                yield PackedArray(server, key, place)

    def wanted(self, server: int, rank: int, length: int) -> list[tuple[int, int]]:
        """Return the pieces of a message from a server to a rank.

        They are pairs of a key, and a size in float32 values. `length` is the number of bytes of
        the message.
        """
        pieces = self.keys.pieces(-(-length // 4)) if length else []
        return [(self.keys.key(rank, number, server), size) for number, size in pieces]

    def read(self, pieces: list[np.ndarray], length: int, server: int) -> Sparse:
        """Return the entries of a message from a server, with positions in the whole model.

        Raises:
            SparseError: the message is malformed.
        """
        return self._shards[server].to_global(self._answers[server].decode(joined_pieces(pieces)[:length]))
