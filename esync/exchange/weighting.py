"""Weighted means over the workers, for parameter servers, collectives and the simulator.

The mean of values v_i of workers that have trained on s_i samples is Σ factor_i·v_i ÷ divisor:

* uniform: the plain mean, (Σ v_i) ÷ p;
* samples: by what each worker has computed, (Σ s_i·v_i) ÷ Σ s_i;
* normalized: FedNova (Wang et al., NeurIPS 2020, Equation 10, equal shares of the data, plain local
  SGD). Every update is divided by what was computed for it, and the mean *direction* is taken as
  many steps as the workers have done on average: (Σ v_i/s_i) ÷ p · (Σ s_i) ÷ p. A fast worker's
  many steps no longer pull the mean to its own data.

FedNova counts local steps; samples count the same where all batches have one size.
"""

from collections.abc import Sequence

import numpy as np

UNIFORM, SAMPLES, NORMALIZED = WEIGHTINGS = ("uniform", "samples", "normalized")
#: Weightings of the statistics: as that of the updates, see `unnormalized`, or one of their own.
AS_UPDATES = "as-updates"
STATISTICS_WEIGHTINGS = (AS_UPDATES, UNIFORM, SAMPLES)


def check(weighting: str) -> str:
    """Return the name of a weighting; ValueError where there is no such weighting."""
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting is {weighting!r}, but should be one of {', '.join(WEIGHTINGS)}")
    return weighting


def unnormalized(weighting: str) -> str:
    """Return the weighting of vectors that are no model updates, such as the statistics.

    Nothing is normalized away in their mean.
    """
    return SAMPLES if weighting == SAMPLES else UNIFORM


def factor(weighting: str, samples: int) -> float:
    """Return the factor of a worker's values in the sum.

    Args:
        weighting: one of WEIGHTINGS.
        samples: training samples behind the values; counted as 1 where there are none.
    """
    if weighting == UNIFORM:
        return 1.0
    return float(max(samples, 1)) if weighting == SAMPLES else 1.0 / max(samples, 1)


def divisor(weighting: str, samples: Sequence[int]) -> float:
    """Return the divisor of the sum, given the samples of all workers in it."""
    count, total = len(samples), sum(max(number, 1) for number in samples)
    if weighting == UNIFORM:
        return count
    return total if weighting == SAMPLES else count * count / total


def rounding_error(workers: int) -> float:
    """Return the relative error of a mean of that many equal float32 values.

    Each is multiplied, they are added up, and the sum is divided.
    """
    return (workers + 2) * 2.0**-24


class LatestValues:
    """The latest values of one bucket of every worker, and their mean.

    They are for vectors that are replaced by that mean: batch-norm statistics. Asynchronous workers
    keep statistics of their own. Each of these describes one worker's data only, so none of them
    suits the common weights where the shares differ. Every commit brings its worker's statistics,
    and the servers publish the mean of the latest of all members: it is what is evaluated and
    exported.

    Memory: one bucket for each worker that has sent values, and one for the others together.

    Args:
        begun: the values that all members begin with; shape (n,), float32, host memory.
        member: rank → whether it counts from the beginning.
        weighting: how much each worker counts in the mean, one of WEIGHTINGS.
    """

    def __init__(self, begun: np.ndarray, member: np.ndarray, weighting: str) -> None:
        begun = begun.copy()
        self._values = dict.fromkeys(np.flatnonzero(member).tolist(), begun)
        self._samples = dict.fromkeys(self._values, 1)
        self._weighting = weighting

    def put(self, rank: int, values: np.ndarray, samples: int) -> None:
        """Store the values that a worker has just sent; they are copied."""
        self._values[rank] = values.copy()
        self._samples[rank] = samples

    def forget(self, rank: int) -> None:
        """Leave a worker out of the mean until it sends its values again."""
        self._values.pop(rank, None)
        self._samples.pop(rank, None)

    def mean(self) -> np.ndarray:
        """Return the mean over the workers, summed in rank order in float64, as float32.

        Values that are the same on all workers, of frozen layers for instance, are preserved bit
        for bit.
        """
        ranks = sorted(self._values)
        total = np.zeros(self._values[ranks[0]].size)
        for rank in ranks:
            own = factor(self._weighting, self._samples[rank])
            total += self._values[rank] if own == 1 else np.multiply(own, self._values[rank], dtype=np.float64)
        total /= divisor(self._weighting, [self._samples[rank] for rank in ranks])
        return total.astype(np.float32)
