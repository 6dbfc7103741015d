"""Weighted means over the workers, for parameter servers, collectives and the simulator.

The mean of values v_i of p workers that have trained on s_i samples is Σ factor_i·v_i ÷ divisor:

* uniform: the plain mean, (Σ v_i) ÷ p;
* samples: weighted by the number of samples, (Σ s_i·v_i) ÷ Σ s_i;
* normalized: FedNova (Wang et al., NeurIPS 2020, Equation 10, for equal shares of the data and
  plain local SGD). Every update is divided by its number of samples, and the mean of these
  directions is multiplied by the mean number of samples: (Σ v_i/s_i) ÷ p · (Σ s_i) ÷ p. So the many
  steps of a fast worker do not pull the mean towards its own data.

FedNova counts local steps, which is equivalent to samples if all batches have the same size.
"""

from collections.abc import Sequence

import numpy as np

UNIFORM, SAMPLES, NORMALIZED = WEIGHTINGS = ("uniform", "samples", "normalized")
#: Weightings of the statistics: that of the updates (see `unnormalized`), or a specific one.
AS_UPDATES = "as-updates"
STATISTICS_WEIGHTINGS = (AS_UPDATES, UNIFORM, SAMPLES)


def check(weighting: str) -> str:
    """Return `weighting`; raise ValueError if it is not one of WEIGHTINGS."""
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting is {weighting!r}, but should be one of {', '.join(WEIGHTINGS)}")
    return weighting


def unnormalized(weighting: str) -> str:
    """Return the weighting of vectors that are not model updates, which are never normalized."""
    return SAMPLES if weighting == SAMPLES else UNIFORM


def factor(weighting: str, samples: int) -> float:
    """Return the factor of a worker's values in the sum.

    Args:
        weighting: one of WEIGHTINGS.
        samples: training samples of the values; 0 counts as 1.
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
    """Return the bound of the relative rounding error of a mean of that many equal float32 values."""
    return (workers + 2) * 2.0**-24


class LatestValues:
    """The latest values of one bucket of every worker, and their mean.

    They are used for batch-norm statistics in asynchronous modes. The statistics of one worker
    describe its own share of the data only, so none of them fits the common weights. Every commit
    includes the statistics of its worker, and the servers publish the mean of the latest ones of
    all members, which is evaluated and exported.

    Memory: one bucket for each worker that has sent values, and one for all others together.

    Args:
        initial: the initial values of all members; shape (n,), float32, host memory.
        member: rank → whether it counts from the start.
        weighting: how much each worker counts in the mean, one of WEIGHTINGS.
    """

    def __init__(self, initial: np.ndarray, member: np.ndarray, weighting: str) -> None:
        self._values = dict.fromkeys(np.flatnonzero(member).tolist(), initial.copy())
        self._samples = dict.fromkeys(self._values, 1)
        self._weighting = weighting

    def put(self, rank: int, values: np.ndarray, samples: int) -> None:
        """Store a copy of the values that a worker has sent."""
        self._values[rank] = values.copy()
        self._samples[rank] = samples

    def forget(self, rank: int) -> None:
        """Leave a worker out of the mean until it sends its values again."""
        self._values.pop(rank, None)
        self._samples.pop(rank, None)

    def mean(self) -> np.ndarray:
        """Return the mean over the workers as float32, summed in rank order in float64.

        Values that are equal on all workers, for instance of frozen layers, are preserved bit for
        bit.
        """
        ranks = sorted(self._values)
        total = np.zeros(self._values[ranks[0]].size)
        for rank in ranks:
            weight = factor(self._weighting, self._samples[rank])
            total += self._values[rank] if weight == 1 else np.multiply(weight, self._values[rank], dtype=np.float64)
        total /= divisor(self._weighting, [self._samples[rank] for rank in ranks])
        return total.astype(np.float32)
