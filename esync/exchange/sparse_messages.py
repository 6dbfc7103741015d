"""Sparse vectors of a whole model as messages to and from each server: what both kinds of exchanges do alike."""

from collections.abc import Sequence

import numpy as np

from ..sparse import Sparse, bounds_of
from ..sparse.codec import Codec
from .layout import Layout
from .shards import PieceKeys, Shard, united


class SparseMessages:
    """Splits, codes and cuts.

    Args:
        layout: how the model is cut.
        slots: number of workers.
        tensors: sizes of the tensors that the weights consist of.
        values: "float32" or "float16", of the values on the wire.

    Attributes:
        keys: of the pieces.
    """

    def __init__(self, layout: Layout, slots: int, tensors: Sequence[int], values: str) -> None:
        bounds = bounds_of(tensors)
        self.keys = PieceKeys(layout, slots)
        self._shards = [Shard(layout, shard, bounds) for shard in range(layout.servers)]
        self._codecs = [Codec(shard.bounds, values) for shard in self._shards]

    def write(self, step: Sparse, shard: int) -> list[tuple[int, np.ndarray]]:
        """The pieces of the message to a server: number among the keys, and values (float32)."""
        return self.keys.cut(self._codecs[shard].encode(self._shards[shard].take(step)))

    def wanted(self, length: int) -> list[tuple[int, int]]:
        """The pieces of a message of so many bytes: number among the keys, and size in float32 values."""
        return self.keys.pieces(-(-length // 4))

    def read(self, pieces: list[np.ndarray], length: int, shard: int) -> Sparse:
        """What a message from a server says, in the places of the whole model.

        Raises:
            SparseError: the message is malformed.
        """
        return self._shards[shard].give(self._codecs[shard].decode(united(pieces)[:length]))
