"""Decide whether a training is still running, by a clock that survives restarts of the server.

All processes of a machine read the same monotonic clock until the machine is restarted. Only after
that is the wall clock used to determine the elapsed time.
"""

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import config
from .schema import Report

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""  # unknown, and treated as different from any other boot


class PersistentClock:
    """A clock in seconds that never goes back, even if the server is restarted.

    Its time is that of the machine's monotonic clock plus `offset`.
    """

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset

    def at(self, monotonic: float) -> float:
        """Return this clock's time at a time of the process's monotonic clock."""
        return monotonic + self.offset

    def now(self) -> float:
        """Return the present time."""
        return self.at(time.monotonic())

    def mark(self) -> dict[str, Any]:
        """Return the clock's state for `resumed`, as JSON."""
        return {"boot": _boot(), "time": self.now(), "wall": time.time(), "offset": self.offset}

    @classmethod
    def resumed(cls, mark: dict[str, Any], latest: float = 0.0) -> "PersistentClock":
        """Return the clock whose state is `mark`.

        It continues after `latest`, the newest known time of that clock.
        """
        if mark["boot"] and mark["boot"] == _boot():
            return cls(mark["offset"])
        passed = max(0.0, time.time() - mark["wall"])
        return cls(max(mark["time"] + passed, latest) - time.monotonic())


@dataclass
class LivenessTracker:
    """Tracks whether a job is alive, by the reports and steps of its workers.

    The sending process numbers its reports and steps. A repeated number is a duplicate. A smaller
    number comes from another process: a replacement, or a worker of the next training, which has not
    begun here yet. The latter must not keep this job alive. Such a sender is therefore ignored until
    there is news from a sender whose numbers have not decreased.

    Attributes:
        heard: time of the newest sign of life by the job's clock; None before the first.
        numbers: sender → its newest number.
        others: senders whose numbers have decreased.
        seconds: sender → seconds of a round or step in its newest message.
    """

    heard: float | None = None
    numbers: dict[str, int] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)

    def report(self, report: Report, now: float) -> None:
        """Record a worker's report of a round."""
        sender = f"reports of rank {report.rank}"
        rounds = report.round - self.numbers.get(sender, report.round - 1)
        if rounds > 0:  # a report may cover several rounds
            self.seconds[sender] = report.seconds / rounds
        self._count(sender, report.round, now)

    def steps(self, rank: int, since: int, steps: int, seconds: float, now: float) -> None:
        """Record a message about a number of steps.

        `since` is the number of steps in earlier messages of the worker's process.
        """
        sender = f"steps of rank {rank}"
        self.seconds[sender] = seconds / steps
        self._count(sender, since, now)

    def seconds_left(self, now: float, progress: float | None, slowest: float) -> float:
        """Return for how many more seconds the job counts as running.

        A job counts as running until it has been silent for config.JOB_ALIVE seconds or for
        config.JOB_ALIVE_ITERATIONS times the slowest worker's iteration or round, whichever is longer.

        Args:
            now: the time by the job's clock.
            progress: time of the last query with new information; None before the first.
            slowest: seconds of the slowest worker's iteration; 0 while unknown.
        """
        heard = max(-math.inf if progress is None else progress, -math.inf if self.heard is None else self.heard)
        return max(0.0, heard + self._patience(slowest) - now)

    def _patience(self, slowest: float) -> float:
        slow = config.JOB_ALIVE_ITERATIONS * max(slowest, 0.0, *self.seconds.values())
        return max(config.JOB_ALIVE, min(slow, config.JOB_FORGOTTEN))

    def _count(self, sender: str, number: int, now: float) -> None:
        newest = self.numbers.get(sender, -1)
        self.numbers[sender] = number
        if number < newest:
            self.others.add(sender)
        elif number > newest and sender not in self.others:
            self.heard = now
            self.others.clear()
