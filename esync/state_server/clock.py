"""A clock that goes on where it was when the process, or the whole machine, starts again.

A process's monotonic clock is the machine's: another process reads the same one, until the machine is restarted. After
that, and only then, the wall clock says how much time has passed.
"""

import time
from pathlib import Path
from typing import Any

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""  # unknown: never equal to another start's


class Clock:
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
    def resumed(cls, mark: dict[str, Any], latest: float = 0.0) -> "Clock":
        """Return the clock that left this mark; it is `latest` at the least, the last time that it was seen to show."""
        if mark["boot"] and mark["boot"] == _boot():
            return cls(mark["offset"])
        passed = max(0.0, time.time() - mark["wall"])
        return cls(max(mark["time"] + passed, latest) - time.monotonic())
