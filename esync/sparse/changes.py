"""Answers with all that has changed: the new values of the weights at these places.

The paper sends the difference G = M − v_k. Without secondary compression θ0 + v_k + G is the model itself, so the
model's own values are sent instead, and replace the worker's: nothing is rounded, θ_k = θ0 + M holds to the last bit
after every answer, and the server need not keep what each worker has.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from . import kernels
from .codec import GAPS, Codec, Parts, runs
from .tracker import Pending, Tracker


class ChangeTracker(Tracker):
    """What has changed since each worker came last.

    Going through the weights is what an answer costs, so it is done once: values, and code of the places, are written
    where they are sent from.
    """

    def __init__(self, codec: Codec, offsets: np.ndarray, slots: int) -> None:
        super().__init__(codec, offsets, slots)
        # Memory that is not written to is not there.
        self._values = np.empty(self.size, np.float32)
        self._code = np.empty(self.size + self.size // kernels.FURTHER + 1, np.uint8)

    def answer(self, worker: int) -> Parts:
        """See `Tracker.answer`."""
        self._pending[worker].mark(self._bits)
        self._pending[worker] = Pending(self.size)
        bounds, sizes = self.codec.bounds, np.diff(self.codec.bounds)
        counts = np.empty(sizes.size, np.int64)
        kernels.count_marks(self._bits, bounds, counts)
        dense = 5 * counts >= 4 * sizes  # a byte for its place beside the four of a value
        counts[dense] = sizes[dense]
        before, length, found = -1, 0, 0
        for part, first, last, whole in self._runs(dense):
            start = int(self.offsets[part])
            weights = self.weights[part][first - start : last - start]
            if whole:
                self._values[found : found + weights.size] = weights
                found += weights.size
            else:
                before, coded, taken = kernels.take_marked(
                    self._bits, first, last, weights, before, self._code[length:], self._values[found:]
                )
                length, found = length + coded, found + taken
        self._bits.fill(0)
        return self.codec.assemble(counts, GAPS, self._code[:length], self._values[:found])

    def _runs(self, dense: np.ndarray) -> Iterator[tuple[int, int, int, bool]]:
        """Neighbouring segments of one part and one kind: the part, first place, the one behind the last, dense?"""
        bounds = self.codec.bounds
        cuts = np.searchsorted(bounds, self.offsets)
        for part, (begin, end) in enumerate(pairwise(cuts)):
            chosen = dense[begin:end]
            both = [(*run, True) for run in runs(chosen)] + [(*run, False) for run in runs(~chosen)]
            for first, last, whole in sorted(both):
                yield part, int(bounds[begin + first]), int(bounds[begin + last]), whole
