"""Detect that a process which should compute has stopped doing so, by its files in /proc."""

import contextlib
import time
from pathlib import Path

#: Seconds between two checks of a process.
CHECK_EVERY = 0.5


class StallDetector:
    """Measures for how long a process has been stalled.

    A process is stalled while neither it nor its descendants use processor time, are runnable, or wait
    for a disk. The time between two checks counts as CHECK_EVERY at most, so that a pause of the checking
    process does not count.
    """

    def __init__(self) -> None:
        self._seconds, self._ticks, self._checked = 0.0, -1, time.monotonic()

    def stalled_for(self, pid: int) -> float:
        """Check the process, and return for how many seconds it has been stalled."""
        now = time.monotonic()
        if now - self._checked >= CHECK_EVERY:
            ticks, able = _activity(pid)
            self._seconds = 0.0 if able or ticks != self._ticks else self._seconds + CHECK_EVERY
            self._ticks, self._checked = ticks, now
        return self._seconds


def _activity(pid: int) -> tuple[int, bool]:
    """Return the processor time of a process's threads and descendants, and whether one can use more.

    The time is in ticks of the kernel. A thread can use more if it is runnable or waits for a disk.
    """
    total, able = 0, False
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = _stat(task)
            total, able = total + int(fields[11]) + int(fields[12]), able or fields[0] in "RD"
            for child in (task / "children").read_text().split():
                ticks, child_able = _activity(int(child))
                total, able = total + ticks, able or child_able
    return total, able


def state_of(pid: int) -> str:
    """Return the state of a process (T: stopped); "" if unknown."""
    try:
        return _stat(Path(f"/proc/{pid}"))[0]
    except OSError:
        return ""


def _stat(process: Path) -> list[str]:
    """Return the fields of the file `stat` of a process or thread, beginning with its state."""
    return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
