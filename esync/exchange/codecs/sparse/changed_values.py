"""Answers with all that has changed: the new values of the changed weights.

The paper sends the difference G = M − v_k. Without secondary compression θ0 + v_k + G is the model
itself, so the model's own values are sent instead, and replace the worker's: nothing is rounded,
θ_k = θ0 + M holds to the last bit after every answer, and the server need not keep what each worker
has.
"""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np
from typing_extensions import override

from . import bitmap, kernels
from .buffers import MessageBuffers, SparseMessage
from .message_format import BITS, GAPS, HEADER, MessageFormat, check_sum, runs
from .tracker import PendingPlaces, Tracker


class ChangeTracker(Tracker):
    """Keeps which weights have changed since each worker came last.

    Going through the weights is the main cost of an answer, so it is done once: where the places
    are coded as marks, as in most long answers, the values are written straight to where the worker
    pulls them.
    """

    def __init__(self, message_format: MessageFormat, offsets: np.ndarray, slots: int) -> None:
        super().__init__(message_format, offsets, slots)
        self._cuts = np.searchsorted(message_format.bounds, offsets)  # the first segment of each part
        # The system provides this memory only where it is written to.
        self._values = np.empty(self.size, np.float32)
        self._code = np.empty(self.size + self.size // kernels.FURTHER + 1, np.uint8)

    @override
    def answer(self, worker: int) -> SparseMessage:
        self._pending[worker].mark(self._bits)
        self._pending[worker] = PendingPlaces(self.size)
        counts = np.zeros(self.format.bounds.size - 1, np.int64)
        bitmap.count_marks(self._bits, self.format.bounds, counts)
        if self.format.bitmap_is_shorter(counts):
            size = HEADER.itemsize + 4 * counts.size + self._bits.nbytes + 4 * int(counts.sum())
            return SparseMessage(size, partial(self._write_marked, counts))
        return self._coded(counts)

    def _write_marked(self, counts: np.ndarray, buffers: MessageBuffers) -> None:
        """Write an answer whose places are coded as marks, a bit each."""
        header = buffers.take(HEADER.itemsize)
        coded = [counts.astype("<u4").view(np.uint8), self._bits.view(np.uint8)]
        for each in coded:
            buffers.put(each)
        check = check_sum(*coded)
        for part, weights in enumerate(self.weights):
            values = buffers.take(4 * int(counts[self._cuts[part] : self._cuts[part + 1]].sum()))
            first, last = int(self.offsets[part]), int(self.offsets[part + 1])
            bitmap.take_marked(self._bits, first, last, weights, values.view(np.float32))
            check += check_sum(values)  # while it is in the processor's cache
        header[:] = self.format.header(counts, BITS, int(counts.sum()), self._bits.nbytes, check & 0xFFFFFFFF)
        self._bits.fill(0)

    def _coded(self, counts: np.ndarray) -> SparseMessage:
        """Return an answer whose places are coded as distances."""
        dense = self.format.dense_is_shorter(counts)
        counts[dense] = np.diff(self.format.bounds)[dense]
        before, length, found = -1, 0, 0
        for part, first, last, whole in self._runs(dense):
            start = int(self.offsets[part])
            weights = self.weights[part][first - start : last - start]
            if whole:
                self._values[found : found + weights.size] = weights
                found += weights.size
            else:
                before, coded, taken = bitmap.take_coded(
                    self._bits, first, last, weights, before, self._code[length:], self._values[found:]
                )
                length, found = length + coded, found + taken
        self._bits.fill(0)
        return self.format.assemble(counts, GAPS, self._code[:length], self._values[:found])

    def _runs(self, dense: np.ndarray) -> Iterator[tuple[int, int, int, bool]]:
        """Yield runs of neighbouring segments of one part and one kind.

        Yields:
            The part, the first place, the one behind the last, and whether the segments are dense.
        """
        bounds = self.format.bounds
        for part, (begin, end) in enumerate(pairwise(self._cuts)):
            chosen = dense[begin:end]
            both = [(*run, True) for run in runs(chosen)] + [(*run, False) for run in runs(~chosen)]
            for first, last, whole in sorted(both):
                yield part, int(bounds[begin + first]), int(bounds[begin + last]), whole
