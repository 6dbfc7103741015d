"""Sparse vectors of a whole model as messages to and from each server: what all sparse codecs do alike on a worker."""

from collections.abc import Iterator, Sequence

import numpy as np

from ..protocol.layout import Layout
from .base import Packed, Room
from .shards import PieceKeys, Shard, united
from .sparse import Sparse, bounds_of
from .sparse.message_format import Codec


class SparseMessages:
    """Splits, codes and cuts.

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

    def pack(self, step: Sparse, rank: int, first: int, room: Room) -> Iterator[Packed]:
        """Put the pieces of the messages to all servers into rooms; `first` is the place of a server's first one."""
        for server in range(len(self._shards)):
            for place, (number, values) in enumerate(self.write(step, server)):
                key = self.keys.key(rank, number, server)
                room(key, values.size)[:] = values
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
