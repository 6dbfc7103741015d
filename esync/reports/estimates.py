"""Means over runs with their intervals, differences between groups of runs, and mean curves.

Intervals are Student's at a level of 95 %; a difference has Welch's, which assumes no equal
variances. Both need two runs or more.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Level of all intervals.
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """Mean over runs.

    Attributes:
        n: number of runs.
        mean: their mean.
        sd: standard deviation of the runs (n − 1); None for one run.
        low, high: the interval of the mean; None for one run.
    """

    n: int
    mean: float
    sd: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Difference:
    """Difference between the means of two groups of runs, with its interval.

    Attributes:
        value: the mean of one group − that of the reference.
        share: the difference as a share of the reference's mean; None if that is 0.
        low, high: the interval of `value`; None if a group has one run only.
    """

    value: float
    share: float | None
    low: float | None = None
    high: float | None = None

    @property
    def beyond_chance(self) -> bool | None:
        """Whether the interval leaves 0 out; None if there is none."""
        return None if self.low is None or self.high is None else not self.low <= 0 <= self.high


@dataclass(frozen=True)
class MeanCurve:
    """Mean of several runs' curves over the time in which all of them have evaluations.

    Attributes:
        times: seconds.
        means: mean of the runs at these times, interpolated between two evaluations.
        sds: standard deviation of the runs at these times; empty for one run.
    """

    times: tuple[float, ...]
    means: tuple[float, ...]
    sds: tuple[float, ...] = ()


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean of some runs with its interval; None if there are no runs."""
    if not values:
        return None
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Estimate(1, mean)
    sd = statistics.stdev(values)
    half = t_quantile(len(values) - 1) * sd / math.sqrt(len(values))
    return Estimate(len(values), mean, sd, mean - half, mean + half)


def difference(group: Estimate, reference: Estimate) -> Difference:
    """Return the difference between two means with Welch's interval."""
    value = group.mean - reference.mean
    share = value / abs(reference.mean) if reference.mean else None
    if group.sd is None or reference.sd is None:
        return Difference(value, share)
    parts = group.sd**2 / group.n, reference.sd**2 / reference.n
    variance = sum(parts)
    if not variance:  # simulations without chance
        return Difference(value, share, value, value)
    freedom = variance**2 / (parts[0] ** 2 / (group.n - 1) + parts[1] ** 2 / (reference.n - 1))
    half = t_quantile(freedom) * math.sqrt(variance)
    return Difference(value, share, value - half, value + half)


def mean_curve(curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> MeanCurve | None:
    """Return the mean of curves, each of which has times in ascending order and values.

    Returns None if there is no time at which all of them have values.
    """
    if not curves or not all(times for times, _ in curves):
        return None
    begin, end = max(times[0] for times, _ in curves), min(times[-1] for times, _ in curves)
    grid = sorted({time for times, _ in curves for time in times if begin <= time <= end})
    if not grid:
        return None
    values = np.array([np.interp(grid, times, own) for times, own in curves])
    sds = values.std(axis=0, ddof=1).tolist() if len(curves) > 1 else []
    return MeanCurve(tuple(grid), tuple(values.mean(axis=0).tolist()), tuple(sds))


def t_quantile(freedom: float, level: float = LEVEL) -> float:
    """Return how many standard errors an interval of that level extends to each side of a mean.

    Args:
        freedom: degrees of freedom of Student's distribution, 1 or more.
        level: share of the distribution in the interval.
    """
    low, high = 0.0, 1e6
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        outside = _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + middle * middle))
        low, high = (middle, high) if outside > 1 - level else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b), by its continued fraction.

    Press et al., *Numerical Recipes*, section 6.4.
    """
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    if x <= 0:
        return 0.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for step in (even, odd):
            d = 1.0 / (1.0 + step * d)
            c = 1.0 + step / c
            fraction *= c * d
        if abs(fraction - before) <= 1e-15 * abs(fraction):
            break
    return front * fraction / a
