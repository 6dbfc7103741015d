"""Answers with a part of what has changed: the largest differences, or rounded ones.

The former are secondary compression, the latter float16. Here θ0 + v_k, the weights that each
worker has, is kept beside θ0 + M. So a worker's own addition θ_k ← θ_k + G and the server's are the
same float32 operation on the same numbers, and θ_k = θ0 + v_k holds to the last bit, whatever was
rounded on the way. What a worker was not sent stays in the difference by itself.
"""

import numpy as np
from typing_extensions import override

from . import Sparse, join
from .bitmap import list_marked
from .buffers import SparseMessage
from .compressors import as_sent
from .message_format import MessageFormat
from .selection import Selection
from .tracker import PendingPlaces, Tracker

#: Share of the weights beyond which comparing all of them costs less than going through the pending
#: places.
EVERYWHERE = 0.05


class DifferenceTracker(Tracker):
    """Keeps what every worker has been sent.

    Args:
        message_format: of the answers; its kind is that of the values on the wire, "float32" or
            "float16".
        offsets: begin of each part, and end of the last one.
        slots: number of workers.
        secondary: chooses the part of each segment's difference that is sent; None: all of it.
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
        """Bytes of the weights, of those of each worker, and of pending places."""
        return super().memory + sum(part.nbytes for parts in self._sent for part in parts)

    @override
    def join(self, worker: int) -> None:
        super().join(worker)
        self._everywhere[worker] = False

    @override
    def init_weights(self, worker: int, part: int, sent: np.ndarray) -> None:
        self._sent[worker][part] = sent

    @override
    def changed(self, places: np.ndarray) -> None:
        super().changed(places)
        for worker in range(len(self._pending)):
            self._look(worker)

    @override
    def answer(self, worker: int) -> SparseMessage:
        return self.format.message(self.difference(worker))

    def difference(self, worker: int) -> Sparse:
        """Return G ← M − v_k, or its largest values, as it is sent, and set v_k ← v_k + G."""
        if self._everywhere[worker] and self._secondary is not None:
            indices, values = self._largest(worker, self._secondary)
            return indices, self._send(worker, indices, values)
        indices, values = self._different(worker)
        chosen = self._secondary.among(indices, values) if self._secondary is not None else slice(None)
        parts = self._send(worker, indices[chosen], values[chosen])
        self._pending[worker] = PendingPlaces(self.size)
        self._everywhere[worker] = False
        self._pending[worker].add(self._differing(worker, indices)[0].astype(np.int32))
        self._look(worker)
        return indices[chosen], parts

    # --- helpers ----------------------------------------------------------------------------------

    def _look(self, worker: int) -> None:
        """Replace too many pending places by a comparison of all weights."""
        pending = self._pending[worker]
        if self._everywhere[worker] or pending.bits is not None or pending.entries > EVERYWHERE * self.size:
            self._everywhere[worker] = True
            self._pending[worker] = PendingPlaces(self.size)

    def _send(self, worker: int, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Set v_k ← v_k + G with the values as they are sent, and return these."""
        sent = as_sent(values, self.format.kind)
        for part, places, parts in self.split((indices, sent)):
            self._sent[worker][part][places] += parts
        return sent

    def _different(self, worker: int) -> Sparse:
        """Return where and by how much the weights of a worker differ, all of it."""
        if self._everywhere[worker]:
            return self._differing(worker, None)
        self._pending[worker].mark(self._bits)
        indices = np.empty(self._pending[worker].entries, np.int64)
        return self._differing(worker, indices[: list_marked(self._bits, indices)])

    def _differing(self, worker: int, indices: np.ndarray | None) -> Sparse:
        """Return where among these places (None: all) weights differ, and by how much."""
        found = []
        for part, (weights, sent) in enumerate(zip(self.weights, self._sent[worker], strict=True)):
            start, stop = self.offsets[part : part + 2]
            if indices is None:
                places = np.flatnonzero(weights != sent)
            else:
                first, last = np.searchsorted(indices, (start, stop))
                places = indices[first:last] - start
                places = places[weights[places] != sent[places]]
            found.append((places + start, weights[places] - sent[places]))
        return join(found)

    def _largest(self, worker: int, secondary: Selection) -> Sparse:
        """Return the largest differences of each segment, found by comparing all weights."""
        difference = np.empty(self.size, np.float32)
        for weights, sent, start in zip(self.weights, self._sent[worker], self.offsets, strict=False):
            np.subtract(weights, sent, out=difference[start : start + weights.size])
        places = secondary.of(difference)
        return places, difference[places]
