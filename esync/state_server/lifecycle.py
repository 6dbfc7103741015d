"""Tell whether a training is still going on, by a clock that survives restarts.

A process's monotonic clock is the machine's: another process reads the same one until the machine
is restarted. Only after that does the wall clock say how much time has passed.
"""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import config
from .schema import Report

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""  # unknown: never equal to another start's


class PersistentClock:
    """Seconds that never go back. `monotonic` and `wall` are this process's clocks; tests give their own."""

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset

    def at(self, monotonic: float) -> float:
        """Return this clock's time at a moment of the process's monotonic clock."""
        return monotonic + self.offset

    def now(self) -> float:
        """Return the time."""
        return self.at(time.monotonic())

    def mark(self) -> dict[str, Any]:
        """Return what `resumed` needs, as JSON can hold it."""
        return {"boot": _boot(), "time": self.now(), "wall": time.time(), "offset": self.offset}

    @classmethod
    def resumed(cls, mark: dict[str, Any], latest: float = 0.0) -> "PersistentClock":
        """Return the clock that left this mark; it is `latest` at the least, the last time that it was seen to show."""
        if mark["boot"] and mark["boot"] == _boot():
            return cls(mark["offset"])
        passed = max(0.0, time.time() - mark["wall"])
        return cls(max(mark["time"] + passed, latest) - time.monotonic())


class SignsOfLife:
    """The signs of life of one job, beside the questions that its coordinator counts itself.

    Reports and steps are numbered by the process that sends them. A number seen before is a message
    that came twice. A number that goes back comes from another process: a replacement, or a worker
    of the next training whose begin is still on its way. The latter must not keep this job alive,
    so that process counts only once a worker that was here before has told something new.

    Attributes:
        heard: the job's time of the newest sign; None before the first.
    """

    def __init__(self) -> None:
        self.heard: float | None = None
        self._numbers: dict[str, int] = {}  # sender → its newest number
        self._others: set[str] = set()  # senders whose numbers went back
        self._seconds: dict[str, float] = {}  # sender → what one round or step took, by its newest message

    def sign(self, now: float) -> None:
        """Take a sign of life that needs no comparison: a worker began this job."""
        self.heard = now

    def report(self, report: Report, now: float) -> None:
        """Take a worker's account of its rounds."""
        sender = f"reports of rank {report.rank}"
        rounds = report.round - self._numbers.get(sender, report.round - 1)
        if rounds > 0:  # a report may cover several rounds
            self._seconds[sender] = report.seconds / rounds
        self._count(sender, report.round, now)

    def steps(self, rank: int, since: int, steps: int, seconds: float, now: float) -> None:
        """Take a message about so many steps; `since` is how many the worker's process had told before."""
        sender = f"steps of rank {rank}"
        self._seconds[sender] = seconds / steps
        self._count(sender, since, now)

    def left(self, now: float, progress: float | None, slowest: float) -> float:
        """Return for how many more seconds the job counts as going on.

        A silence is normal for config.JOB_ALIVE seconds, or for config.JOB_ALIVE_ITERATIONS of what
        the slowest worker takes for an iteration or for a round, where that is longer.

        Args:
            now: the job's time.
            progress: when a question last told something new; None before that.
            slowest: seconds of the slowest worker's iteration; 0 while unknown.
        """
        heard = max(-math.inf if progress is None else progress, -math.inf if self.heard is None else self.heard)
        return max(0.0, heard + self._patience(slowest) - now)

    def _patience(self, slowest: float) -> float:
        slow = config.JOB_ALIVE_ITERATIONS * max(slowest, 0.0, *self._seconds.values())
        return max(config.JOB_ALIVE, min(slow, config.JOB_FORGOTTEN))

    def _count(self, sender: str, number: int, now: float) -> None:
        newest = self._numbers.get(sender, -1)
        self._numbers[sender] = number
        if number < newest:
            self._others.add(sender)
        elif number > newest and sender not in self._others:
            self.heard = now
            self._others.clear()

    def state(self) -> dict[str, Any]:
        """Return all of this, as JSON can hold it."""
        return {
            "heard": self.heard,
            "numbers": self._numbers,
            "others": sorted(self._others),
            "seconds": self._seconds,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "SignsOfLife":
        """Return what `state` was taken from."""
        self = cls()
        self.heard, self._numbers, self._others = state["heard"], dict(state["numbers"]), set(state["others"])
        self._seconds = dict(state["seconds"])
        return self
