"""Sparse messages to and from each server, and the keys of the pieces that they are cut into.

MXNet binds a key to the byte size of its first value. So every worker has keys of its own on every
server, after those of all channels: one for each *size class* (multiples of the smallest one by
powers of √2), and one for each further piece of the largest class. They are used in both
directions. A message is cut into as many pieces of the largest class as it fills, and one piece of
the smallest class that the rest fits into. This minimizes the number of pieces, and pads the last
one by at most 41 %.
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

#: MXNet computes a key's server from key · 9973 in 32 bits.
MAX_KEYS = 2**31 // 9973


@lru_cache
def size_classes(maximum: int, minimum: int = config.SPARSE_PIECE_ELEMENTS) -> tuple[int, ...]:
    """Return the size classes, ascending, in float32 values; the last one is `maximum`."""
    steps = max(0, math.ceil(2 * math.log2(maximum / minimum))) if maximum > minimum else 0
    return (*(math.ceil(minimum * 2 ** (step / 2)) for step in range(steps)), maximum)


def pieces(elements: int, maximum: int) -> list[int]:
    """Return the classes of the pieces of a message, in order, as indices of `size_classes`.

    Args:
        elements: float32 values of the message.
        maximum: values of the largest class.
    """
    sizes = size_classes(maximum)
    full, rest = divmod(elements, maximum)
    last = [bisect_left(sizes, rest)] if rest or not full else []
    return [len(sizes) - 1] * full + last


def joined_pieces(pieces: list[np.ndarray]) -> np.ndarray:
    """Return the bytes of a message from its pieces, including the padding."""
    return np.concatenate([piece.view(np.uint8) for piece in pieces]) if pieces else np.empty(0, np.uint8)


class PieceKeys:
    """The keys of the pieces of sparse messages.

    Args:
        layout: how the model is cut into buckets.
        slots: number of workers.

    Attributes:
        maximum: float32 values of the largest piece, without its header.
    """

    def __init__(self, layout: Layout, slots: int) -> None:
        self.maximum = layout.bucket_elements
        self._servers, self._slots = layout.servers, slots
        self._first = layout.slots_of_channels(slots + 1)
        self._classes = len(size_classes(self.maximum))
        # A message is never much longer than the dense vector; see `sparse.message_format`.
        self._width = self._classes + 2 * -(-layout.sizes[WEIGHTS] // self.maximum)
        if layout.servers > 1 and self.key(slots, 0, 0) * layout.servers > MAX_KEYS:
            raise ValueError(f"{slots} workers with {layout.servers} servers need more keys than MXNet can tell apart")

    def pieces(self, elements: int) -> list[tuple[int, int]]:
        """Return number and size of each piece of a message of that many float32 values."""
        sizes, largest = size_classes(self.maximum), self._classes - 1
        return [
            (size_class if size_class < largest else largest + position, sizes[size_class])
            for position, size_class in enumerate(pieces(elements, self.maximum))
        ]

    def key(self, rank: int, number: int, shard: int) -> int:
        """Return the key of a worker's piece."""
        return (self._first + rank * self._width + number) * self._servers + shard

    def locate(self, key: int) -> tuple[int, int] | None:
        """Return rank and number of a piece's key; None for any other key."""
        slot = key // self._servers - self._first
        rank, number = divmod(slot, self._width)
        return (rank, number) if slot >= 0 and rank < self._slots else None


class SparseMessages:
    """Converts sparse vectors of the whole model to pieces of messages, and back, on a worker.

    Args:
        layout: how the model is cut into buckets.
        keys: of the pieces.
        tensors: sizes of the tensors that the weights consist of.
        values: type of the values sent, "float32" or "float16".
    """

    def __init__(self, layout: Layout, keys: PieceKeys, tensors: Sequence[int], values: str) -> None:
        bounds = bounds_of(tensors)
        self.keys = keys
        self._shards = [ServerShard(layout, server, bounds) for server in range(layout.servers)]
        self._formats = [MessageFormat(shard.bounds, values) for shard in self._shards]

    def pack(self, step: Sparse, rank: int, buffer: GetBuffer) -> Iterator[PackedArray]:
        """Write the pieces of the messages to all servers to buffers."""
        for server, (shard, message_format) in enumerate(zip(self._shards, self._formats, strict=True)):
            message = message_format.message(shard.to_local(step))
            pieces = self.piece_arrays(server, rank, message.size)
            message.copy_to([buffer(key, size) for key, size in pieces])
            for number, (key, _) in enumerate(pieces):
                yield PackedArray(server, key, number)

    def piece_arrays(self, server: int, rank: int, length: int) -> list[tuple[int, int]]:
        """Return the pieces of a message of `length` bytes: keys, and sizes in float32 values."""
        pieces = self.keys.pieces(-(-length // 4)) if length else []
        return [(self.keys.key(rank, number, server), size) for number, size in pieces]

    def read(self, pieces: list[np.ndarray], length: int, server: int) -> Sparse:
        """Return the entries of a message from a server, with indices in the whole model."""
        return self._shards[server].to_global(self._formats[server].decode(joined_pieces(pieces)[:length]))
