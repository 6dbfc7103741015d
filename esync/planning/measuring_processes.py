"""Processes that measure something: start them on their hosts as launch does, and watch them."""

import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import config
from ..launch.processes import Process
from ..launch.spec import ProcessSpec
from ..runtime import progress
from ..runtime.closing import Closing

#: Seconds to wait for output before the processes are checked again.
TICK = 0.1


class MeasuringProcesses(Closing):
    """Processes that report events, for use in a `with` statement, which terminates them at its end.

    Args:
        specs: the processes, in the order of their start.
        logs: folder for their output.
        notify: called with messages for the user.

    Attributes:
        started: the processes that have been started, by name.
    """

    def __init__(self, specs: Sequence[ProcessSpec], logs: Path, notify: Callable[[str], None]) -> None:
        self._waiting, self._logs, self._notify = list(specs), logs, notify
        self.started: dict[str, Process] = {}

    @property
    def running(self) -> bool:
        """Whether a process runs or has yet to be started."""
        return bool(self._waiting) or any(process.running for process in self.started.values())

    def turn(self) -> None:
        """Start the processes that may start, and read the reports of the others for TICK seconds."""
        while self._waiting and all(process.ready or not process.running for process in self.started.values()):
            spec = self._waiting.pop(0)
            self.started[spec.name] = Process(spec, self._logs / f"{spec.name}.log", _ignore, self._notify)
        outputs = [process.output for process in self.started.values() if not process.output.closed]
        readable = select.select(outputs, [], [], TICK)[0]
        for process in self.started.values():
            if process.output in readable:
                process.read()
            process.poll()

    def report(self, name: str) -> dict[str, Any] | None:
        """Return the newest measurement that a process has reported."""
        process = self.started.get(name)
        return None if process is None else process.events.get(progress.MEASURED)

    def failure(self, name: str) -> str:
        """Return why a process has failed; "" if it runs or has succeeded."""
        process = self.started.get(name)
        if process is None or process.running or process.terminated:
            return ""
        if process.exit_code == 0 and self.report(name) is not None:
            return ""
        over = process.events.get(progress.OVER)
        reason = over["reason"] if over else process.last_lines[-1] if process.last_lines else ""
        return f"{process.how_it_ended}{f': {reason}' if reason else ''}"

    def close(self) -> None:
        """Terminate all processes, kill those that do not end in time, and wait for them."""
        self._waiting.clear()
        try:
            for end, patience in ((Process.terminate, config.LAUNCH_GRACE), (Process.kill, config.LAUNCH_GRACE)):
                for process in self.started.values():
                    end(process)
                limit = time.monotonic() + patience
                while self.running and time.monotonic() < limit:
                    self.turn()
        finally:
            for process in self.started.values():
                process.close()


def _ignore(name: str, line: str, end: str) -> None:
    """Ignore a line of output, which is in the log already."""
