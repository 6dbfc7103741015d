"""Sparse vectors of a whole model as messages to and from each server: what both kinds of exchanges do alike."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...sparse import Sparse, bounds_of
from ...sparse.codec import FLOAT32, NEW_VALUES, Codec
from ..base import Model
from ..protocol.layout import Layout
from .shards import PieceKeys, Shard, united


def answers_new_values(secondary_ratio: float, values: str) -> bool:
    """Whether servers answer with the new values of all weights that have changed, instead of with differences."""
    return not secondary_ratio and values == FLOAT32


class SparseMessages:
    """Splits, codes and cuts.

    Args:
        layout: how the model is cut.
        slots: number of workers.
        tensors: sizes of the tensors that the weights consist of.
        values: "float32" or "float16", of the values on the wire.
        answers: kind of the servers' messages (`codec.KINDS`); None: as `values`.

    Attributes:
        keys: of the pieces.
    """

    def __init__(
        self, layout: Layout, slots: int, tensors: Sequence[int], values: str, answers: str | None = None
    ) -> None:
        bounds = bounds_of(tensors)
        self.keys = PieceKeys(layout, slots)
        self._shards = [Shard(layout, shard, bounds) for shard in range(layout.servers)]
        self._codecs = [Codec(shard.bounds, values) for shard in self._shards]
        self._answers = [Codec(shard.bounds, answers or values) for shard in self._shards]

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
        return self._shards[shard].give(self._answers[shard].decode(united(pieces)[:length]))


class SparseConversation(SparseMessages):
    """What the workers of DGS and its relatives say and hear.

    Args:
        layout: how the model is cut.
        slots: number of workers.
        options: of the service; see `sparse_server.SparseServer`.
    """

    def __init__(self, layout: Layout, slots: int, options: Mapping[str, Any]) -> None:
        values = options["values"]
        self.replaces = answers_new_values(options["secondary_ratio"], values)
        super().__init__(layout, slots, options["tensors"], values, NEW_VALUES if self.replaces else values)

    def take(self, answer: Sparse, model: Model) -> None:
        """Let an answer go into a worker's weights."""
        (model.put if self.replaces else model.add)(answer)
