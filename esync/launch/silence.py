"""Announce what a job waits for when no progress has been reported for some time."""

import time
from collections.abc import Sequence

from .. import config
from ..runtime import progress
from .processes import Process


class SilenceMonitor:
    """Detects that the processes of a job are silent.

    Args:
        began: start of the job (time.monotonic).
    """

    def __init__(self, began: float) -> None:
        self._began = self._announced = began

    def announcement(self, processes: Sequence[Process]) -> str:
        """Return a sentence about what the job waits for, or "" if none is due."""
        running = [process for process in processes if process.running]
        # No worker runs before the services are ready, and after the workers have ended.
        awaited = [process for process in running if process.spec.role == "worker"] or running
        silent = min(awaited, key=lambda process: process.reported, default=None)
        if silent is None:
            return ""
        reports = (process.events.get(progress.MISSING) for process in processes)
        missing = next((report for report in reports if report and report["what"]), None)
        joined = silent.spec.is_user_program and progress.JOINED in silent.events and missing is None
        patience = config.ANNOUNCE_AFTER if silent.progress or not joined else config.LAUNCH_PROGRAM_SILENCE
        newest = max((process.reported for process in processes), default=self._began)
        if missing is not None:  # a quiet program is not the fault of a process that it awaits since a moment ago
            newest = max(newest, missing["at"])
        now = time.monotonic()
        if now - max(newest, self._announced) < patience:
            return ""
        self._announced = now
        if missing is not None:
            return f"waiting for {missing['what']} for {now - missing['at']:.0f} s"
        names = ", ".join(process.spec.name for process in awaited)
        last = f"; {silent.spec.name} said last: {silent.last_lines[-1]}" if silent.last_lines else ""
        silence = "nothing has been printed" if silent.spec.is_user_program else "no round has been reported"
        return f"{silence} for {now - newest:.0f} s; still running: {names}{last}"
