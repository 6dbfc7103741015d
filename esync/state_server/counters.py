"""Sums over the reports of a job's workers, and numbers of its events, since this server started.

They are not in the journal. After a restart of the server they begin at 0, which monitoring systems
interpret as the reset of a counter.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from .schema import Report

EventKind = Literal["begin", "restart", "rejoin", "lost", "straggler", "recovered", "slowest", "end"]
EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind)


class WorkerCounters(NamedTuple):
    """Sums over a worker's reports: durations in seconds, sizes in bytes.

    `rounds` is the highest round that it has reported.
    """

    rounds: int = 0
    local_iterations: int = 0
    samples: int = 0
    compute: float = 0.0
    wait: float = 0.0
    exchange: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0

    def plus(self, report: Report) -> "WorkerCounters":
        """Return the sums with a report; unchanged if its round or a later one has been counted."""
        if report.round <= self.rounds:
            return self
        sums = (total + getattr(report, name) for name, total in zip(self._fields[1:], self[1:], strict=True))
        return WorkerCounters(report.round, *sums)


@dataclass(frozen=True, slots=True)
class JobCounters:
    """A consistent copy of a job's counters.

    Attributes:
        workers: the sums of each worker, by rank.
        reports: rank → newest report.
        events: kind → number of events.
    """

    workers: list[WorkerCounters]
    reports: dict[int, Report]
    events: dict[EventKind, int]
