"""Answers with some of the differences: the largest ones (secondary compression), or float16.

The server stores θ0 + v_k, the weights that each worker has, in addition to θ0 + M. The worker and
the server perform the same float32 addition θ_k ← θ_k + G on the same numbers, so θ_k = θ0 + v_k
holds bit for bit, even if G was rounded. Differences that were not sent remain for the next answer.
"""

import numpy as np
from typing_extensions import override

from . import Sparse, join, split
from .bitmap import list_marked
from .buffers import SparseMessage
from .compressors import as_sent
from .message_format import MessageFormat
from .selection import Selection
from .tracker import PendingIndices, Tracker

#: Share of the weights beyond which comparing all of them costs less than checking the pending
#: indices.
EVERYWHERE = 0.05


class DifferenceTracker(Tracker):
    """Tracks differences by storing the weights that every worker has.

    Args:
        message_format: of the answers, of kind "float32" or "float16".
        offsets: start of each part, and end of the last one.
        slots: number of workers.
        secondary: selects the differences of each segment to send; None: all of them.
    """

    def __init__(
        self, message_format: MessageFormat, offsets: np.ndarray, slots: int, secondary: Selection | None = None
    ) -> None:
        super().__init__(message_format, offsets, slots)
        self._secondary = secondary
        self._sent = [[np.empty(0, np.float32)] * (offsets.size - 1) for _ in range(slots)]
        self._everywhere = [False] * slots

    @property
    def memory(self) -> int:
        """Bytes of the weights, of those of each worker, and of pending indices."""
        return super().memory + sum(part.nbytes for parts in self._sent for part in parts)

    @override
    def join(self, worker: int) -> None:
        super().join(worker)
        self._everywhere[worker] = False

    @override
    def init_weights(self, worker: int, part: int, sent: np.ndarray) -> None:
        self._sent[worker][part] = sent

    @override
    def changed(self, indices: np.ndarray) -> None:
        super().changed(indices)
        for worker in range(len(self._pending)):
            self._limit_pending(worker)

    @override
    def answer(self, worker: int) -> SparseMessage:
        return self.format.message(self.difference(worker))

    def difference(self, worker: int) -> Sparse:
        """Return G ← M − v_k, or its largest values, as sent, and set v_k ← v_k + G."""
        if self._everywhere[worker] and self._secondary is not None:
            indices, values = self._largest(worker, self._secondary)
            return indices, self._send(worker, indices, values)
        indices, values = self._different(worker)
        chosen = self._secondary.among(indices, values) if self._secondary is not None else slice(None)
        parts = self._send(worker, indices[chosen], values[chosen])
        self._pending[worker] = PendingIndices(self.size)
        self._everywhere[worker] = False
        self._pending[worker].add(self._differing(worker, indices)[0].astype(np.int32))
        self._limit_pending(worker)
        return indices[chosen], parts

    # --- helpers ----------------------------------------------------------------------------------

    def _limit_pending(self, worker: int) -> None:
        """If there are too many pending indices, compare all weights instead."""
        pending = self._pending[worker]
        if self._everywhere[worker] or pending.bits is not None or pending.entries > EVERYWHERE * self.size:
            self._everywhere[worker] = True
            self._pending[worker] = PendingIndices(self.size)

    def _send(self, worker: int, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Set v_k ← v_k + G with the values as they are sent, and return these."""
        sent = as_sent(values, self.format.kind)
        for weights, (local, parts) in zip(self._sent[worker], split((indices, sent), self.offsets), strict=True):
            weights[local] += parts
        return sent

    def _different(self, worker: int) -> Sparse:
        """Return all differences between the model and the weights of a worker."""
        if self._everywhere[worker]:
            return self._differing(worker, None)
        self._pending[worker].mark(self._bits)
        indices = np.empty(self._pending[worker].entries, np.int64)
        return self._differing(worker, indices[: list_marked(self._bits, indices)])

    def _differing(self, worker: int, indices: np.ndarray | None) -> Sparse:
        """Return the differences of a worker's weights at these indices (None: all)."""
        parts = []
        for part, (weights, sent) in enumerate(zip(self.weights, self._sent[worker], strict=True)):
            start, stop = self.offsets[part : part + 2]
            if indices is None:
                differing = np.flatnonzero(weights != sent)
            else:
                first, last = np.searchsorted(indices, (start, stop))
                differing = indices[first:last] - start
                differing = differing[weights[differing] != sent[differing]]
            parts.append((differing + start, weights[differing] - sent[differing]))
        return join(parts)

    def _largest(self, worker: int, secondary: Selection) -> Sparse:
        """Return the largest differences of each segment, by comparing all weights."""
        difference = np.empty(self.size, np.float32)
        for weights, sent, start in zip(self.weights, self._sent[worker], self.offsets, strict=False):
            np.subtract(weights, sent, out=difference[start : start + weights.size])
        indices = secondary.of(difference)
        return indices, difference[indices]
