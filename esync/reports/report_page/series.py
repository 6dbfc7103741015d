"""Series of a run for charts: rates over time, thinned curves, bands over several runs.

Nothing is smoothed. Where a series has more values than a chart can show, rates are averaged over
longer periods, evaluations are left out at regular distances, and the caller is told by how much.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.logged_values import weighted_mean
from ..estimates import mean_curve
from ..phases import round_ends
from ..summary_file import DeviceSummary

#: Most points of a curve; about one for every two pixels of a chart.
POINTS = 300
#: More points of all runs of a group than that are thinned before their mean is taken.
MAX_POINTS = 20_000
#: Most periods of a curve of rates.
PERIODS = 120


@dataclass(frozen=True)
class Series:
    """Values at ascending places; with a band where they are means of several runs."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


def rate_over_time(devices: Sequence[tuple[DeviceSummary, Sequence[float]]]) -> Series:
    """Return the amount per second of all devices together, in periods of equal length.

    The amount of a round is spread evenly over the round. The series ends with the device that
    finishes first, because from then on the sum says nothing about the rate. If a log ends
    long before the others', its device is included up to its last round only.

    Args:
        devices: each with an amount for each of its rounds, for instance samples.
    """
    seconds = _common_end([device for device, _ in devices])
    periods = min(PERIODS, max((len(amounts) for _, amounts in devices), default=0))
    if not periods or seconds <= 0:
        return Series((), ())
    edges = np.linspace(0.0, seconds, periods + 1)
    sums = np.zeros(periods)
    for device, amounts in devices:
        ends = np.maximum.accumulate([0.0, *round_ends(device)])  # logs of two runs in one folder may fall back
        sums += np.diff(np.interp(edges, ends, np.cumsum([0.0, *amounts])))
    rates = sums * periods / seconds
    return Series(tuple(((edges[1:] + edges[:-1]) / 2).tolist()), tuple(rates.tolist()))


def means_over_time(devices: Sequence[DeviceSummary], name: str) -> Series:
    """Return what a program has logged, as the mean of all devices by samples, over time.

    A point is the mean of as many rounds as there are devices, or of several times as many: in synchronous
    modes these are the rounds of all devices that end together.
    """
    logging = [device for device in devices if name in device.logged]
    rounds = sorted(
        (end, float(samples), mean)
        for device in logging
        for end, samples, mean in zip(round_ends(device), device.num_samples_list, device.logged[name], strict=True)
        if mean is not None
    )
    size = len(logging) * max(1, -(-len(rounds) // (PERIODS * max(1, len(logging)))))
    parts = [rounds[start : start + size] for start in range(0, len(rounds), size or 1)]
    means = [weighted_mean((mean, max(1.0, samples)) for _, samples, mean in part) for part in parts]
    return Series(tuple(part[-1][0] for part in parts), tuple(mean for mean in means if mean is not None))


def _common_end(devices: Sequence[DeviceSummary]) -> float:
    """Return the end of the device that finishes first, of those that are there to the end.

    Those are the devices that would have begun another round of their usual length before the end.
    """
    ends = [max(round_ends(device)) for device in devices]
    last = max(ends, default=0.0)
    usual = [2 * end / len(device.rounds_list) for end, device in zip(ends, devices, strict=True)]
    longest = max(usual, default=0.0)
    return min((end for end in ends if end >= last - longest), default=0.0)


def thinned(series: Series, limit: int = POINTS) -> tuple[Series, int]:
    """Return every n-th point, up to the last one, and the smallest n that keeps the points few enough."""
    step = max(1, -(-len(series.x) // limit))

    def thinned(values: Sequence[float]) -> tuple[float, ...]:
        return tuple(values[::-1][::step][::-1])

    return Series(thinned(series.x), thinned(series.y), thinned(series.low), thinned(series.high)), step


def mean_series(runs: Sequence[Series]) -> Series:
    """Return the mean of several runs with a band of ± one standard deviation, or the only run."""
    runs = [run for run in runs if run.x]
    if len(runs) == 1:
        return runs[0]
    if sum(len(run.x) for run in runs) > MAX_POINTS:
        runs = [thinned(run, POINTS)[0] for run in runs]
    curve = mean_curve([(run.x, run.y) for run in runs])
    if curve is None:
        return Series((), ())
    low, high = (tuple(mean + sign * sd for mean, sd in zip(curve.means, curve.sds, strict=True)) for sign in (-1, 1))
    return Series(curve.times, curve.means, low, high)
