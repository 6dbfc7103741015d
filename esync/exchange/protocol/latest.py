"""The latest values of every worker, and their mean, of vectors that are replaced by it: batch-norm statistics.

Asynchronous workers keep batch-norm statistics of their own. Each of these describes one worker's
data only, so none of them suits the common weights where the shares differ. Every commit brings its
worker's statistics, and the servers publish the mean of the latest of all members: it is what is
evaluated and exported.
"""

import numpy as np

from ..weighting import divisor, factor


class LatestValues:
    """The values of one bucket of every worker.

    Memory: one bucket for each worker that has sent values, and one for the others together.

    Args:
        begun: the values that all members begin with; shape (n,), float32, host memory.
        member: rank → whether it counts from the beginning.
        weighting: how much each worker counts in the mean, see `weighting`.
    """

    def __init__(self, begun: np.ndarray, member: np.ndarray, weighting: str) -> None:
        begun = begun.copy()
        self._values = dict.fromkeys(np.flatnonzero(member).tolist(), begun)
        self._samples = dict.fromkeys(self._values, 1)
        self._weighting = weighting

    def put(self, rank: int, values: np.ndarray, samples: int) -> None:
        """Take over the values that a worker has just sent; they are copied."""
        self._values[rank] = values.copy()
        self._samples[rank] = samples

    def forget(self, rank: int) -> None:
        """Leave a worker out of the mean until it sends its values again."""
        self._values.pop(rank, None)
        self._samples.pop(rank, None)

    def mean(self) -> np.ndarray:
        """Return the mean over the workers, summed in rank order in float64, as float32.

        Values that are the same on all workers, of frozen layers for instance, come out bit for bit.
        """
        ranks = sorted(self._values)
        total = np.zeros(self._values[ranks[0]].size)
        for rank in ranks:
            own = factor(self._weighting, self._samples[rank])
            total += self._values[rank] if own == 1 else np.multiply(own, self._values[rank], dtype=np.float64)
        total /= divisor(self._weighting, [self._samples[rank] for rank in ranks])
        return total.astype(np.float32)
