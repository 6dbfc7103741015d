"""Tracking of what a server owes each worker: the base of all trackers.

It is Algorithm 2 of the DGS paper with its errata. In the paper's words M ← M − g, G ← M − v_k, v_k
← v_k + G, with M and v_k zero at the start. Here θ0 + M is kept: the weights that all start from
with all updates.

The places where a worker's weights may differ from them are remembered, so that a message costs as
much as has changed, not as much as the model holds: the places of each update wait, shared by all
workers, until the worker comes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from . import Sparse
from .bitmap import mark, no_marks
from .buffers import SparseMessage
from .message_format import MessageFormat


class PendingPlaces:
    """The positions at which the weights of one worker may differ from the model.

    Args:
        size: of the model.

    Attributes:
        entries: length of all lists together; places in several of them count several times.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.lists: list[np.ndarray] = []
        self.entries = 0
        self.bits: np.ndarray | None = None

    def add(self, places: np.ndarray) -> None:
        """Add places (int32) that may differ, too. The array is kept."""
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
    """The weights of one server, which lie in several parts, and what each worker is owed.

    Args:
        message_format: of the answers.
        offsets: begin of each part, and end of the last one (int64).
        slots: number of workers.

    Attributes:
        weights: the parts (float32), changed in place; `place` puts them there.
    """

    def __init__(self, message_format: MessageFormat, offsets: np.ndarray, slots: int) -> None:
        self.format, self.offsets = message_format, offsets
        self.size = int(offsets[-1])
        self.weights: list[np.ndarray] = [np.empty(0, np.float32)] * (offsets.size - 1)
        self._pending = [PendingPlaces(self.size) for _ in range(slots)]
        self._bits = no_marks(self.size)

    @property
    def memory(self) -> int:
        """Bytes of the weights, and of pending places (shared lists counted once)."""
        lists = {id(each): each.nbytes for pending in self._pending for each in pending.lists}
        bits = sum(pending.bits.nbytes for pending in self._pending if pending.bits is not None)
        return sum(part.nbytes for part in self.weights) + sum(lists.values()) + bits + self._bits.nbytes

    def place(self, part: int, weights: np.ndarray) -> None:
        """Take the array that has a part of the weights from now on."""
        self.weights[part] = weights

    def join(self, worker: int) -> None:
        """Take in a worker (or its successor); it pulls all weights before it sends anything."""
        self._pending[worker] = PendingPlaces(self.size)

    def init_weights(self, worker: int, part: int, sent: np.ndarray) -> None:  # noqa: B027 - of no use to some
        """Note that a worker has pulled exactly these weights; `sent` may be changed in place."""

    def changed(self, places: np.ndarray) -> None:
        """Note that the weights at these places have been changed."""
        places = places.astype(np.int32)
        for pending in self._pending:
            pending.add(places)

    def split(self, entries: Sparse) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield the entries in each part: its number, places in it, values."""
        indices, values = entries
        edges = np.searchsorted(indices, self.offsets)
        for part, (first, last) in enumerate(pairwise(edges)):
            yield part, indices[first:last] - self.offsets[part], values[first:last]

    @abstractmethod
    def answer(self, worker: int) -> SparseMessage:
        """Return the message that brings a worker up to date, as far as it goes."""
