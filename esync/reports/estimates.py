"""Means over runs with their intervals, differences between groups of runs, and mean curves.

Intervals are Student's at a level of 95 %, for a difference Welch's, which does not assume equal
variances. Both need at least two runs.
"""

import functools
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
        """Whether the interval excludes 0; None without an interval."""
        return None if self.low is None or self.high is None else not self.low <= 0 <= self.high


@dataclass(frozen=True)
class MeanCurve:
    """Mean of several runs' curves, over the time in which all of them have evaluations.

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
    if not variance:  # deterministic simulations
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
    values = np.array([np.interp(grid, times, accuracies) for times, accuracies in curves])
    sds = values.std(axis=0, ddof=1).tolist() if len(curves) > 1 else []
    return MeanCurve(tuple(grid), tuple(values.mean(axis=0).tolist()), tuple(sds))


@functools.cache
def _gauss_legendre() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(200)  # ten times as slow as a quantile, so it is cached


def t_quantile(freedom: float, level: float = LEVEL) -> float:
    """Return the half-width, in standard errors, of the interval of a mean at that level.

    With t = √ν · tan θ, the share of Student's distribution up to t is an integral of cos^(ν − 1) θ.

    Args:
        freedom: degrees of freedom ν of Student's distribution, 1 or more.
        level: share of the distribution in the interval.
    """
    nodes, weights = _gauss_legendre()
    norm = math.sqrt(math.pi) * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        inside = middle * weights @ np.cos(middle * (nodes + 1) / 2) ** (freedom - 1) / norm
        low, high = (middle, high) if inside < level else (low, middle)
    return math.sqrt(freedom) * math.tan(high)
