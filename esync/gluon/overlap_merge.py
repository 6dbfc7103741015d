"""The merge of the common model into a worker that trained on during the exchange (`--overlap`).

Local steps during the exchange are kept. Weights: w ← w_new + (w − w_pushed). The next update is
relative to w_new, so every local step is sent exactly once. Statistics: those of batch norm are
running means, which decay in every iteration. The received mean replaces the pushed values, of
which the share KEPTⁿ remains after n iterations: s ← s + KEPTⁿ·(s_new − s). This is between s and
s_new, so a variance stays positive.
"""

from collections.abc import Mapping

import numpy as np

from .. import config
from ..exchange import STATISTICS, WEIGHTS, Flat
from ..exchange.codecs.sparse import Sparse
from .flat_arrays import FlatArrays


class OverlapMerge:
    """A sink that merges the common model with the local steps since the push.

    It implements `exchange.ModelSink`.

    Args:
        weights: of this worker.
        statistics: of this worker.
        anchor: float32; receives the common weights, to which the next update is relative.
        further: name of each further vector → receives its common values.

    Attributes:
        iterations: local iterations since the push; set it before the model is written.
        weights: the received common weights, rounded to the type of this worker's weights.
            Otherwise the next update would contain the rounding error.
        statistics: the received common statistics, rounded in the same way.
    """

    def __init__(
        self, weights: FlatArrays, statistics: FlatArrays, anchor: np.ndarray, further: Mapping[str, Flat]
    ) -> None:
        self._weights, self._statistics, self._further = weights, statistics, further
        self._pushed = np.empty(weights.size, np.float32)
        self.weights, self.statistics = Flat(anchor), Flat(np.empty(statistics.size, np.float32))
        self.iterations = 0

    def begin(self) -> None:
        """Copy the weights that the worker pushes; the replica must be open."""
        self._weights.read(0, self._pushed.size, self._pushed)

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Merge values of the common model with the local steps since the push."""
        if vector not in (WEIGHTS, STATISTICS):
            self._further[vector].write(start, values)
            return
        statistics = vector == STATISTICS
        arrays, common = self._weights, self.weights
        if statistics:
            arrays, common = self._statistics, self.statistics
        factor = np.float32(config.OVERLAP_STATISTICS_MOMENTUM**self.iterations)
        for at, local in arrays.pieces(start, start + values.size):
            new = common.values[at : at + local.size]
            new[:] = values[at - start : at - start + local.size].astype(local.dtype, copy=False)
            if statistics:
                arrays.write(at, local + factor * (new - local))
            else:
                arrays.write(at, new + (local - self._pushed[at : at + local.size]))

    def add(self, step: Sparse) -> None:
        """See `exchange.ModelSink`."""
        raise RuntimeError("sparse exchanges are not overlapped with training")

    put = add

    def discard(self) -> None:
        """Replace the worker's model by the common one at the end of the run.

        Local steps since the push are discarded, because they are never sent.
        """
        self._weights.write(0, self.weights.values)
        self._statistics.write(0, self.statistics.values)
