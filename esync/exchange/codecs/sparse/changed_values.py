"""Answers with all changes: the new values of the changed weights.

The paper sends the difference G = M − v_k. Without secondary compression, θ0 + v_k + G is the model
itself, so the values of the model are sent instead, and replace the worker's. Nothing is rounded,
θ_k = θ0 + M holds bit for bit after every answer, and the server need not store the weights of each
worker.
"""

from itertools import pairwise

import numpy as np
from typing_extensions import override

from . import bitmap
from .buffers import SparseMessage
from .message_format import BITS, MessageFormat
from .tracker import PendingIndices, Tracker


class ChangeTracker(Tracker):
    """Tracks which weights have changed since the last answer to each worker."""

    def __init__(self, message_format: MessageFormat, offsets: np.ndarray, slots: int) -> None:
        super().__init__(message_format, offsets, slots)
        # The system allocates pages of this memory when they are written to.
        self._values = np.empty(self.size, np.float32)

    @override
    def answer(self, worker: int) -> SparseMessage:
        bits, bounds = self._bits, self.format.bounds
        self._pending[worker].mark(bits)
        self._pending[worker] = PendingIndices(self.size)
        counts = np.zeros(bounds.size - 1, np.int64)
        bitmap.count_marks(bits, bounds, counts)
        as_marks = self.format.bitmap_is_shorter(counts)
        if not as_marks:
            for segment in np.flatnonzero(self.format.dense_is_shorter(counts)):
                bitmap.mark(bits, np.arange(bounds[segment], bounds[segment + 1]))
        count = 0
        for weights, (first, last) in zip(self.weights, pairwise(self.offsets.tolist()), strict=True):
            count += bitmap.gather_marked(bits, first, last, weights, self._values[count:])
        values = self._values[:count]
        if as_marks:
            self._bits = bitmap.no_marks(self.size)  # the old ones are part of the message
            return self.format.assemble(counts, BITS, bits.view(np.uint8), values)
        indices = np.empty(count, np.int64)
        bitmap.list_marked(bits, indices)
        return self.format.message((indices, values))
