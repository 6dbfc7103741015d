"""Metrics of the figures, as pure functions of numbers.

Times are in seconds, speeds in samples or bytes per second. None means that the log does not have a
figure.
"""

import math
from collections.abc import Iterable, Sequence

from ..runtime.metric import TEST_ACCURACY, Metric

#: Largest number of seconds, samples, bytes or iterations in a log (30 million years, a petabyte in
#: a round). Larger ones are refused, so that sums, ratios and axes are always finite.
MAX_NUMBER = 1e15
#: Shortest time in seconds that is used as a divisor.
INSTANT = 1e-6


def time_to_target(
    times: Sequence[float], values: Sequence[float], target: float, metric: Metric = TEST_ACCURACY
) -> float | None:
    """Return the time of the first evaluation that is at least as good as `target`, or None.

    The time is not interpolated between two evaluations.
    """
    reached = [time for time, value in zip(times, values, strict=True) if metric.reached(value, target)]
    return min(reached, default=None)


def rate(amount: float, seconds: float) -> float | None:
    """Return `amount` per second; None for less than INSTANT seconds."""
    return amount / seconds if seconds >= INSTANT else None


def speed_limit(batch_sizes: Iterable[int | None], step_times: Iterable[float | None]) -> float | None:
    """Return the upper limit of samples per second: Σ batch size ÷ step time over all devices.

    Return None if the speed of a device is unknown.
    """
    total = 0.0
    for batch_size, step_time in zip(batch_sizes, step_times, strict=True):
        if not batch_size or not step_time:
            return None
        total += batch_size / step_time
    return total or None


def speedup_limit(speeds: Sequence[float | None], alone: float | None = None) -> float | None:
    """Return the largest speedup in samples per second over the fastest device alone.

    With v_i samples per second on device i it is Σ_i v_i ÷ max_i v_i: 1 for one device, n for n equal
    ones. The speedup to an accuracy may exceed it if larger batches or averages learn more from a
    sample.

    Args:
        speeds: samples per second of each device.
        alone: the speed of the device to compare with; None for the fastest one.

    Returns:
        None if the speed of a device is unknown, or if there are no devices.
    """
    known_speeds = [speed for speed in speeds if speed]
    if not known_speeds or len(known_speeds) < len(speeds):
        return None
    return math.fsum(known_speeds) / (alone or max(known_speeds))


def efficiency(throughput: float | None, limit: float | None) -> float | None:
    """Return the throughput as a share of the speed limit."""
    return throughput / limit if throughput is not None and limit else None


def share(part: int, total: int) -> float:
    """Return part ÷ total, or 0 if the total is 0."""
    return part / total if total else 0.0
