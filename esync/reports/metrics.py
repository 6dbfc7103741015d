"""Metrics of the figures, as pure functions of numbers.

Times are seconds, speeds samples or bytes per second. None stands for a figure that the log does
not give: nothing is made up in its place.
"""

from collections.abc import Iterable, Sequence

#: No seconds, samples, bytes or iterations in a log are more than that (30 million years, a
#: petabyte in a round): the readers refuse such numbers, so that sums, ratios and axes of what they
#: let through are always finite.
MOST = 1e15
#: Seconds below which nothing is divided by a time.
INSTANT = 1e-6


def time_to_target(times: Sequence[float], accuracies: Sequence[float], target: float) -> float | None:
    """Return the time of the first evaluated weights whose accuracy is at least `target`; None if there are none.

    Nothing is interpolated between two evaluations.
    """
    reached = [time for time, accuracy in zip(times, accuracies, strict=True) if accuracy >= target]
    return min(reached, default=None)


def speedup(baseline_time: float | None, time: float | None) -> float | None:
    """Return how many times faster than the baseline it was; None unless both reached the target (paper, section 5)."""
    if baseline_time is None or time is None or time < INSTANT:
        return None
    return baseline_time / time


def rate(amount: float, seconds: float) -> float | None:
    """Return an amount (samples, bytes) per second; None for a run that took no time."""
    return amount / seconds if seconds >= INSTANT else None


def speed_limit(batch_sizes: Iterable[int | None], step_times: Iterable[float | None]) -> float | None:
    """Return the samples per second that no scheduling can exceed: the sum of batch size / step time of the devices.

    None if the speed of a device is not known.
    """
    total = 0.0
    for batch_size, step_time in zip(batch_sizes, step_times, strict=True):
        if not batch_size or not step_time:
            return None
        total += batch_size / step_time
    return total or None


def efficiency(throughput: float | None, limit: float | None) -> float | None:
    """Return the throughput as a share of the speed limit."""
    return throughput / limit if throughput is not None and limit else None


def computing_ratio(computing: Sequence[float], total_time: float) -> float | None:
    """Return the share of the total time that the log shows as computing; None for a log that does not show it."""
    return sum(computing) / total_time if computing and total_time >= INSTANT else None


def published_computing_ratio(aggregation: Sequence[float], total_time: float) -> float | None:
    """Return 1 − aggregation / total time, the published formula: all that is not aggregation passes for computing."""
    return 1 - sum(aggregation) / total_time if total_time >= INSTANT else None


def share(part: int, whole: int) -> float:
    """Return a part of a count as a share, 0 where there is nothing to count."""
    return part / whole if whole else 0.0


def mean_and_max(values: Iterable[float | None]) -> tuple[float, float] | None:
    """Return mean and maximum of the values that are there; None if there are none."""
    known = [value for value in values if value is not None]
    return (sum(known) / len(known), max(known)) if known else None
