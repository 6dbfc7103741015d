"""Metrics of the figures, as pure functions of numbers.

Times are in seconds, speeds in samples or bytes per second. None stands for a figure that the log
does not have; it is never replaced by a guess.
"""

import math
from collections.abc import Iterable, Sequence

from ..runtime.metric import TEST_ACCURACY, Metric

#: Largest number of seconds, samples, bytes or iterations in a log (30 million years, a petabyte in
#: a round). Larger ones are refused, so that sums, ratios and axes are always finite.
MOST = 1e15
#: Shortest time, in seconds, by which anything is divided.
INSTANT = 1e-6


def time_to_target(
    times: Sequence[float], values: Sequence[float], target: float, metric: Metric = TEST_ACCURACY
) -> float | None:
    """Return the time of the first evaluated weights whose metric is at least as good as `target`.

    Returns None if there are none.

    Nothing is interpolated between two evaluations.
    """
    reached = [time for time, value in zip(times, values, strict=True) if metric.reached(value, target)]
    return min(reached, default=None)


def rate(amount: float, seconds: float) -> float | None:
    """Return an amount, such as samples or bytes, per second; None for a run that took no time."""
    return amount / seconds if seconds >= INSTANT else None


def speed_limit(batch_sizes: Iterable[int | None], step_times: Iterable[float | None]) -> float | None:
    """Return the samples per second that no scheduling can exceed.

    This is the sum of batch size ÷ step time over all devices.

    Returns None if the speed of a device is not known.
    """
    total = 0.0
    for batch_size, step_time in zip(batch_sizes, step_times, strict=True):
        if not batch_size or not step_time:
            return None
        total += batch_size / step_time
    return total or None


def speedup_limit(speeds: Sequence[float | None], alone: float | None = None) -> float | None:
    """Return the largest speedup in samples per second over the fastest device alone.

    With v_i samples per second on device i it is Σ_i v_i ÷ max_i v_i, a number without unit: 1 for
    one device, n for n equal ones. No scheduling can exceed it. A time to an accuracy may, where
    larger batches or averages learn more from a sample.

    Args:
        speeds: samples per second of each device.
        alone: the speed of another device to take the place of the fastest.

    Returns:
        None if the speed of a device is not known, or if there are no devices.
    """
    known = [speed for speed in speeds if speed]
    if not known or len(known) < len(speeds):
        return None
    return math.fsum(known) / (alone or max(known))


def efficiency(throughput: float | None, limit: float | None) -> float | None:
    """Return the throughput as a share of the speed limit."""
    return throughput / limit if throughput is not None and limit else None


def share(part: int, whole: int) -> float:
    """Return a part of a count as a share, which is 0 if the count is 0."""
    return part / whole if whole else 0.0
