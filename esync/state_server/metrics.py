"""Figures of a job from each worker's newest report: the slowest worker, and the totals."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .schema import Report, Totals

_MAX_RATE = 1e15  # samples per second; larger values are invalid


@dataclass(frozen=True, slots=True)
class WorkerSpeed:
    """The speed of a worker.

    Attributes:
        seconds: seconds of one iteration; 0 while unknown.
        speed: samples per second while it computes, that is without waits, in its newest report; 0
            while unknown.
    """

    seconds: float = 0.0
    speed: float = 0.0


def _per(amount: float, seconds: float) -> float:
    """Return amount ÷ seconds; 0 if that is invalid, for instance for a round without a duration."""
    rate = amount / seconds if seconds > 0 else 0.0
    return rate if rate < _MAX_RATE else 0.0


def pace(capability: float, report: Report | None) -> WorkerSpeed:
    """Return the speed of a worker.

    Args:
        capability: smoothed seconds per iteration in the coordinator; 0 if unknown, in which case the
            report is used.
        report: its newest report; None before the first.
    """
    if report is None or not report.local_iterations or not report.compute:
        return WorkerSpeed(capability)
    return WorkerSpeed(capability or report.compute / report.local_iterations, _per(report.samples, report.compute))


def slowest(paces: Mapping[int, WorkerSpeed]) -> int | None:
    """Return the rank whose iterations take longest; None if unknown or if there is only one."""
    known_paces = [(pace.seconds, -rank) for rank, pace in paces.items() if pace.seconds]
    return -max(known_paces)[1] if len(known_paces) > 1 else None


def totals(paces: Mapping[int, WorkerSpeed], reports: Iterable[Report]) -> Totals | None:
    """Return the totals of all workers that have reported a round; None before the first."""
    shown = [report for report in reports if report.seconds > 0]
    if not shown:
        return None
    limit = sum(paces[report.rank].speed for report in shown)
    throughput = sum(_per(report.samples, report.seconds) for report in shown)
    evaluated = [report for report in shown if report.accuracy is not None]
    newest = max(evaluated, key=lambda report: (report.accuracy_round or 0, report.round), default=None)
    of_metric = newest or shown[0]
    return Totals(
        workers=len(shown),
        speed_limit=limit,
        throughput=throughput,
        efficiency=throughput / limit if limit else None,
        lost_waiting=sum(_per(paces[report.rank].speed * report.wait, report.seconds) for report in shown),
        lost_exchanging=sum(_per(paces[report.rank].speed * report.exchange, report.seconds) for report in shown),
        accuracy=newest.accuracy if newest else None,
        accuracy_round=newest.accuracy_round if newest else None,
        parts=newest.parts if newest else {},
        metric=of_metric.metric,
        goal=of_metric.goal,
    )
