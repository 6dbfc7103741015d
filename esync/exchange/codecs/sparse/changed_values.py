"""Answers with all that has changed: the new values of the changed weights.

The paper sends the difference G = M − v_k. Without secondary compression θ0 + v_k + G is the model
itself, so the model's own values are sent instead, and replace the worker's: nothing is rounded,
θ_k = θ0 + M holds to the last bit after every answer, and the server need not keep what each worker
has.
"""

from itertools import pairwise

import numpy as np
from typing_extensions import override

from . import bitmap
from .buffers import SparseMessage
from .message_format import BITS, MessageFormat
from .tracker import PendingPlaces, Tracker


class ChangeTracker(Tracker):
    """Keeps which weights have changed since each worker came last."""

    def __init__(self, message_format: MessageFormat, offsets: np.ndarray, slots: int) -> None:
        super().__init__(message_format, offsets, slots)
        # The system provides this memory only where it is written to.
        self._values = np.empty(self.size, np.float32)

    @override
    def answer(self, worker: int) -> SparseMessage:
        bits, bounds = self._bits, self.format.bounds
        self._pending[worker].mark(bits)
        self._pending[worker] = PendingPlaces(self.size)
        counts = np.zeros(bounds.size - 1, np.int64)
        bitmap.count_marks(bits, bounds, counts)
        as_marks = self.format.bitmap_is_shorter(counts)
        if not as_marks:
            for segment in np.flatnonzero(self.format.dense_is_shorter(counts)):
                bitmap.mark(bits, np.arange(bounds[segment], bounds[segment + 1]))
        found = 0
        for weights, (first, last) in zip(self.weights, pairwise(self.offsets.tolist()), strict=True):
            found += bitmap.take_marked(bits, first, last, weights, self._values[found:])
        values = self._values[:found]
        if as_marks:
            self._bits = bitmap.no_marks(self.size)  # the old ones are part of the message
            return self.format.assemble(counts, BITS, bits.view(np.uint8), values)
        indices = np.empty(found, np.int64)
        bitmap.list_marked(bits, indices)
        return self.format.message((indices, values))
