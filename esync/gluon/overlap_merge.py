"""The merge of the common model into a worker that trained on during the exchange (`--overlap`).

What the worker learnt meanwhile is kept. Weights: w ← w_new + (w − w_pushed). The next update is
counted from w_new, so every local step is sent exactly once. Statistics: batch norm's are running
means, which forget by a share an iteration. The mean that arrives takes the place of what was
pushed, so after n more iterations only the share KEPTⁿ of it is left: s ← s + KEPTⁿ·(s_new − s).
That lies between the two, so a variance stays positive.
"""

from collections.abc import Mapping

import numpy as np

from .. import config
from ..exchange import STATISTICS, WEIGHTS, Flat
from ..exchange.codecs.sparse import Sparse
from .flat_arrays import FlatArrays


class OverlapMerge:
    """A sink that merges the common model with what was learnt since the push.

    It is an `exchange.ModelSink`.

    Args:
        weights: of this worker.
        statistics: of this worker.
        anchor: float32; takes the common weights, from which the next update is counted.
        further: name of each further vector → takes its common values as they are.

    Attributes:
        iterations: local iterations since the push; set it before the model comes.
        weights: the common weights as they have come, rounded where this worker's weights are not
            float32: what float16 cannot hold would otherwise look like progress in the other
            direction, and be taken back.
        statistics: likewise, the common statistics.
    """

    def __init__(
        self, weights: FlatArrays, statistics: FlatArrays, anchor: np.ndarray, further: Mapping[str, Flat]
    ) -> None:
        self._weights, self._statistics, self._further = weights, statistics, further
        self._pushed = np.empty(weights.size, np.float32)
        self.weights, self.statistics = Flat(anchor), Flat(np.empty(statistics.size, np.float32))
        self.iterations = 0

    def begin(self) -> None:
        """Remember the weights that the worker pushes now; the replica is open."""
        self._weights.read(0, self._pushed.size, self._pushed)

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Take values of the common model, and add what was learnt since the push."""
        if vector not in (WEIGHTS, STATISTICS):
            self._further[vector].write(start, values)
            return
        statistics = vector == STATISTICS
        arrays, common = self._weights, self.weights
        if statistics:
            arrays, common = self._statistics, self.statistics
        kept = np.float32(config.OVERLAP_STATISTICS_KEPT**self.iterations)
        for at, own in arrays.pieces(start, start + values.size):
            new = common.values[at : at + own.size]
            new[:] = values[at - start : at - start + own.size].astype(own.dtype, copy=False)
            if statistics:
                arrays.write(at, own + kept * (new - own))
            else:
                arrays.write(at, new + (own - self._pushed[at : at + own.size]))

    def add(self, step: Sparse) -> None:
        """See `exchange.ModelSink`."""
        raise RuntimeError("sparse exchanges are not overlapped with training")

    put = add

    def discard(self) -> None:
        """Take the common model as it is, because the run is over.

        What was learnt since the push will never be sent.
        """
        self._weights.write(0, self.weights.values)
        self._statistics.write(0, self.statistics.values)
