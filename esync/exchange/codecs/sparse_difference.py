"""Sparse steps up, sparse differences down: the messages of DGS and its relatives.

A worker sends a sparse step, which is subtracted from the weights at once. Every worker gets an answer of its own: what
has changed since its last one, or the largest part of that (`sparse.tracker`). Either way goes through keys that the
worker has for itself. The dense model is published as it is, for workers that come.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from ...sparse import Differences, Sparse
from ...sparse.codec import NEW_VALUES
from ..base import Model, Source
from ..protocol import wire
from ..protocol.layout import Layout
from .base import Decoder, Encoder, Packed, Packing, Room, a_step
from .shards import PieceKeys
from .sparse_messages import SparseMessages

#: As error messages call these codecs.
NAME = "sparse difference"


class DifferencePacking(Packing):
    """Sparse steps and differences.

    Args:
        differences: what the messages hold.
        layout: how the model is cut.
        slots: number of workers.
        tensors: sizes of the tensors that the weights consist of.
    """

    name = NAME

    def __init__(self, differences: Differences, layout: Layout, slots: int, tensors: Sequence[int]) -> None:
        self._differences, self._layout, self._tensors = differences, layout, tensors
        self.keys = PieceKeys(layout, slots)

    @cached_property
    def messages(self) -> SparseMessages:
        """Splits, codes and cuts them."""
        values = self._differences.values
        answers = NEW_VALUES if self._differences.replace else values
        return SparseMessages(self._layout, self.keys, self._tensors, values, answers)

    def encoder(self, rank: int) -> "StepEncoder":
        """See `Packing.encoder`."""
        return StepEncoder(self.messages, rank)

    def decoder(self, rank: int) -> "DifferenceDecoder":
        """See `Packing.decoder`."""
        return DifferenceDecoder(self.messages, rank, self._differences.replace)


class StepEncoder(Encoder):
    """Sends the entries of a step."""

    def __init__(self, messages: SparseMessages, rank: int) -> None:
        self._messages, self._rank = messages, rank

    def write(self, values: Source | Sparse, room: Room) -> Iterator[Packed]:
        """See `Encoder.write`."""
        yield from self._messages.pack(a_step(values, NAME), self._rank, 0, room)

    def sizes(self, server: int) -> list[int]:
        """Not known without values."""
        raise NotImplementedError(_UNKNOWN)


class DifferenceDecoder(Decoder):
    """Adds differences to the weights, or replaces weights by their new values."""

    def __init__(self, messages: SparseMessages, rank: int, replace: bool) -> None:
        self._messages, self._rank, self._replace = messages, rank, replace

    def wanted(self, server: int, length: int) -> list[tuple[int, int]]:
        """See `Decoder.wanted`."""
        return self._messages.wanted(server, self._rank, length)

    def read(self, server: int, arrays: Iterable[np.ndarray], length: int, model: Model) -> None:
        """See `Decoder.read`."""
        pieces = [array[wire.HEADER_ELEMENTS :] for array in arrays]
        if pieces:
            entries = self._messages.read(pieces, length, server)
            (model.put if self._replace else model.add)(entries)

    def answer_sizes(self, server: int) -> list[int]:
        """Not known without values."""
        raise NotImplementedError(_UNKNOWN)


_UNKNOWN = f"how large the messages of the codec {NAME!r} are depends on the values: simulate with real gradients"
