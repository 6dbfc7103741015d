"""The base of trackers, which track how the weights of each worker differ from the server's.

They implement Algorithm 2 of the DGS paper with its errata: M ← M − g, G ← M − v_k, v_k ← v_k + G,
with M and v_k zero at the start. Trackers store θ0 + M, the initial weights plus all updates.

For each worker, a tracker stores the indices at which the worker's weights may differ, so the cost
of an answer depends on the number of changes, not on the size of the model. The array of indices of
an update is shared by all workers that have not received it.
"""

from abc import ABC, abstractmethod

import numpy as np

from .bitmap import mark, no_marks
from .buffers import SparseMessage
from .message_format import MessageFormat


class PendingIndices:
    """The indices at which the weights of one worker may differ from the model.

    Args:
        size: of the model.

    Attributes:
        lists: arrays of indices (int32).
        entries: total length of the lists; duplicates are counted.
        bits: bitmap of further indices; None: there are none.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.lists: list[np.ndarray] = []
        self.entries = 0
        self.bits: np.ndarray | None = None

    def add(self, indices: np.ndarray) -> None:
        """Add an array of indices (int32), without copying it."""
        self.lists.append(indices)
        self.entries += indices.size
        if self.entries > self._size:  # a bit for each weight takes less memory
            bits = self.bits if self.bits is not None else no_marks(self._size)
            self.mark(bits)
            self.bits, self.lists, self.entries = bits, [], 0

    def mark(self, bits: np.ndarray) -> None:
        """Set the bits of the pending indices in a bitmap."""
        if self.bits is not None and self.bits is not bits:
            np.bitwise_or(bits, self.bits, out=bits)
        for indices in self.lists:
            mark(bits, indices)


class Tracker(ABC):
    """The weights of one server, in several parts, and their differences to those of each worker.

    Args:
        message_format: of the answers.
        offsets: start of each part, and end of the last one (int64).
        slots: number of workers.

    Attributes:
        weights: the parts (float32), changed in place; set by `bind_weights`.
    """

    def __init__(self, message_format: MessageFormat, offsets: np.ndarray, slots: int) -> None:
        self.format, self.offsets = message_format, offsets
        self.size = int(offsets[-1])
        self.weights: list[np.ndarray] = [np.empty(0, np.float32)] * (offsets.size - 1)
        self._pending = [PendingIndices(self.size) for _ in range(slots)]
        self._bits = no_marks(self.size)

    @property
    def memory(self) -> int:
        """Bytes of the weights, and of pending indices (shared lists counted once)."""
        lists = {id(indices): indices.nbytes for pending in self._pending for indices in pending.lists}
        bits = sum(pending.bits.nbytes for pending in self._pending if pending.bits is not None)
        return sum(part.nbytes for part in self.weights) + sum(lists.values()) + bits + self._bits.nbytes

    def bind_weights(self, part: int, weights: np.ndarray) -> None:
        """Bind a part of the weights to its array."""
        self.weights[part] = weights

    def join(self, worker: int) -> None:
        """Add or replace a worker, which pulls all weights before it sends anything."""
        self._pending[worker] = PendingIndices(self.size)

    def init_weights(self, worker: int, part: int, sent: np.ndarray) -> None:  # noqa: B027 - of no use to some
        """Set the weights that a worker has pulled; `sent` may be changed in place."""

    def changed(self, indices: np.ndarray) -> None:
        """Note that the weights at these indices have changed."""
        indices = indices.astype(np.int32)
        for pending in self._pending:
            pending.add(indices)

    @abstractmethod
    def answer(self, worker: int) -> SparseMessage:
        """Return the next answer to a worker."""
