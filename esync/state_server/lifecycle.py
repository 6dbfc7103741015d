"""Whether a training is still going on, by a clock that survives restarts.

All processes of a machine read the same monotonic clock until the machine is restarted. Only then
the wall clock has to tell how much time has passed.
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
    """A clock in seconds that never goes back, even when the server is restarted.

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

        It does not go back behind `latest`, the newest time that it is known to have shown.
        """
        if mark["boot"] and mark["boot"] == _boot():
            return cls(mark["offset"])
        passed = max(0.0, time.time() - mark["wall"])
        return cls(max(mark["time"] + passed, latest) - time.monotonic())


class LivenessTracker:
    """Signs of life of one job, apart from the queries, which its coordinator counts.

    Reports and steps are numbered by the process that sends them. The same number again is a
    message that came twice. A smaller number comes from another process: a replacement, or a worker
    of the next training, whose begin is still on its way. The latter must not keep this job alive,
    so that such a sender counts again only after news from another one, whose numbers have not gone
    back.

    Attributes:
        heard: time of the newest sign by the job's clock; None before the first.
    """

    def __init__(self) -> None:
        self.heard: float | None = None
        self._numbers: dict[str, int] = {}  # sender → its newest number
        self._others: set[str] = set()  # senders whose numbers went back
        self._seconds: dict[str, float] = {}  # sender → what one round or step took, by its newest message

    def touch(self, now: float) -> None:
        """Note a sign of life that needs no comparison: a worker has begun this job."""
        self.heard = now

    def report(self, report: Report, now: float) -> None:
        """Note a worker's report of a round."""
        sender = f"reports of rank {report.rank}"
        rounds = report.round - self._numbers.get(sender, report.round - 1)
        if rounds > 0:  # a report may cover several rounds
            self._seconds[sender] = report.seconds / rounds
        self._count(sender, report.round, now)

    def steps(self, rank: int, since: int, steps: int, seconds: float, now: float) -> None:
        """Note a message about a number of steps.

        `since` is the number of steps in the earlier messages of the worker's process.
        """
        sender = f"steps of rank {rank}"
        self._seconds[sender] = seconds / steps
        self._count(sender, since, now)

    def seconds_left(self, now: float, progress: float | None, slowest: float) -> float:
        """Return for how many more seconds the job counts as going on.

        Silence is normal for config.JOB_ALIVE seconds, or for config.JOB_ALIVE_ITERATIONS times the
        slowest worker's iteration or round, if that is longer.

        Args:
            now: the time by the job's clock.
            progress: when a query last had new information; None before that.
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
        """Return the state for `from_state`, as JSON."""
        return {
            "heard": self.heard,
            "numbers": self._numbers,
            "others": sorted(self._others),
            "seconds": self._seconds,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "LivenessTracker":
        """Return the signs of life whose state this is."""
        self = cls()
        self.heard, self._numbers, self._others = state["heard"], dict(state["numbers"]), set(state["others"])
        self._seconds = dict(state["seconds"])
        return self
