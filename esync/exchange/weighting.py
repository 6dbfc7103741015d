"""How much each worker's part counts in the mean: pure functions, the same on servers, collectives and simulator.

The mean of values v_i of workers that have trained on s_i samples is Σ factor_i·v_i ÷ divisor:

* uniform: the plain mean, (Σ v_i) ÷ p;
* samples: by what each worker has computed, (Σ s_i·v_i) ÷ Σ s_i;
* normalized: FedNova (Wang et al., NeurIPS 2020, Equation 10, equal shares of the data, plain local SGD). Every update
  is divided by what was computed for it, and the mean *direction* is taken as many steps as the workers have done on
  average: (Σ v_i/s_i) ÷ p · (Σ s_i) ÷ p. A fast worker's many steps no longer pull the mean to its own data.

FedNova counts local steps; samples count the same where all batches have one size.
"""

from collections.abc import Sequence

UNIFORM, SAMPLES, NORMALIZED = WEIGHTINGS = ("uniform", "samples", "normalized")


def check(weighting: str) -> str:
    """The name itself; ValueError where there is no such weighting."""
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting is {weighting!r}, but should be one of {', '.join(WEIGHTINGS)}")
    return weighting


def unnormalized(weighting: str) -> str:
    """How vectors are averaged that are no updates of the weights (statistics, …): nothing is normalized away."""
    return SAMPLES if weighting == SAMPLES else UNIFORM


def factor(weighting: str, samples: int) -> float:
    """What a worker's values are multiplied by before they are added up.

    Args:
        weighting: one of WEIGHTINGS.
        samples: training samples behind the values; counted as 1 where there are none.
    """
    if weighting == UNIFORM:
        return 1.0
    return float(max(samples, 1)) if weighting == SAMPLES else 1.0 / max(samples, 1)


def divisor(weighting: str, samples: Sequence[int]) -> float:
    """What the sum is divided by, given the samples of all who are in it."""
    count, total = len(samples), sum(max(each, 1) for each in samples)
    if weighting == UNIFORM:
        return count
    return total if weighting == SAMPLES else count * count / total


def rounding_error(workers: int) -> float:
    """Return by what share of its size a mean of so many equal float32 values may differ from them.

    Each is multiplied, they are added up, and the sum is divided.
    """
    return (workers + 2) * 2.0**-24
