"""Tracking of what a server owes each worker (DGS paper, Algorithm 2 with its errata): the base of all trackers.

In the paper's words M ← M − g, G ← M − v_k, v_k ← v_k + G, with M and v_k zero at the start. Here
θ0 + M is kept: the weights that all start from with all updates.

Where a worker's weights may differ from them is remembered, so that a message costs what has
changed, not what the model holds: the places of each update wait, shared by all workers, until the
worker comes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from . import Sparse, kernels
from .bitmap import mark, no_marks
from .buffers import SparseMessage
from .message_format import Codec


class PendingPlaces:
    """The positions at which the weights of one worker may differ from the model.

    Args:
        size: of the model.

    Attributes:
        entries: of all lists, places that are in several of them included.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.lists: list[np.ndarray] = []
        self.entries = 0
        self.bits: np.ndarray | None = None

    def add(self, places: np.ndarray) -> None:
        """These (int32) may differ, too. The array is kept."""
        self.lists.append(places)
        self.entries += places.size
        if self.entries > self._size:  # a bit for each weight takes less memory
            bits = self.bits if self.bits is not None else no_marks(self._size)
            self.mark(bits)
            self.bits, self.lists, self.entries = bits, [], 0

    def mark(self, bits: np.ndarray) -> None:
        """Set the bits at these places."""
        if self.bits is not None and self.bits is not bits:
            np.bitwise_or(bits, self.bits, out=bits)
        for each in self.lists:
            mark(bits, each)


class Tracker(ABC):
    """The weights of one server, which lie in several parts, and what is owed to whom.

    Args:
        codec: of the answers.
        offsets: where each part begins, and where the last one ends (int64).
        slots: number of workers.

    Attributes:
        weights: the parts (float32), changed in place; `place` puts them there.
    """

    def __init__(self, codec: Codec, offsets: np.ndarray, slots: int) -> None:
        self.codec, self.offsets = codec, offsets
        self.size = int(offsets[-1])
        self.weights: list[np.ndarray] = [np.empty(0, np.float32)] * (offsets.size - 1)
        self._pending = [PendingPlaces(self.size) for _ in range(slots)]
        self._bits = no_marks(self.size)

    @property
    def memory(self) -> int:
        """Bytes: the weights, and what is pending (shared lists counted once)."""
        lists = {id(each): each.nbytes for pending in self._pending for each in pending.lists}
        bits = sum(pending.bits.nbytes for pending in self._pending if pending.bits is not None)
        return sum(part.nbytes for part in self.weights) + sum(lists.values()) + bits + self._bits.nbytes

    def place(self, part: int, weights: np.ndarray) -> None:
        """Take the array in which a part of the weights is from now on."""
        self.weights[part] = weights

    def join(self, worker: int) -> None:
        """Take a worker (or its successor) in; it will pull all weights before it sends anything."""
        self._pending[worker] = PendingPlaces(self.size)

    def welcome(self, worker: int, part: int, sent: np.ndarray) -> None:  # noqa: B027 - of no use to some
        """Note that a worker has pulled exactly these weights; `sent` is its own, and may be changed in place."""

    def apply(self, step: Sparse) -> None:
        """M ← M − g: subtract a step from the weights."""
        for part, places, values in self.split(step):
            kernels.subtract(self.weights[part], places, values)
        self.changed(step[0])

    def changed(self, places: np.ndarray) -> None:
        """The weights at these places have been changed."""
        places = places.astype(np.int32)
        for pending in self._pending:
            pending.add(places)

    def pending(self, worker: int) -> PendingPlaces:
        """Where the weights of a worker may differ from the model."""
        return self._pending[worker]

    def split(self, entries: Sparse) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The entries in each part: its number, places in it, values."""
        indices, values = entries
        edges = np.searchsorted(indices, self.offsets)
        for part, (first, last) in enumerate(pairwise(edges)):
            yield part, indices[first:last] - self.offsets[part], values[first:last]

    @abstractmethod
    def answer(self, worker: int) -> SparseMessage:
        """The message that brings a worker up to date, as far as it goes; of use until the next one is asked for."""
