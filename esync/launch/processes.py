"""A process of a job: start it, read its output into a log, and end it with all its descendants."""

import os
import re
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runtime import progress
from ..runtime.output import LossyFile
from ..runtime.progress import Progress
from . import ssh
from .process_backend import ChildProcess
from .spec import ProcessSpec

#: Number of lines of a process's output that are kept for the message about its failure.
LAST_LINES = 12
#: Control sequences of terminals, for colours and movements of the cursor.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
#: End of a line: a newline, or the carriage return with which a progress bar draws its next state.
_END = re.compile(rb"(?<=\n)|(?<=\r)(?=[^\n])")
#: Number of bytes to read at once, and the length at which output without a newline counts as a line.
CHUNK = 65536
#: Largest number of chunks to read before the next process, since some programs never stop printing.
CHUNKS = 16


@dataclass(frozen=True)
class ProgramError:
    """An exception that has ended a worker: type and message, and the number of rounds before it."""

    reason: str
    rounds: int


class Process:
    r"""A process of a job, started when this is made.

    Args:
        spec: what to start.
        log: file for its output.
        process_line: called with its name, each line of its output, and the line's end, which is
            "\r" if a progress bar draws its next state in the same line.
        notify: called with messages for the user.
        restarted: append to the log, because the process replaces an earlier one.

    Attributes:
        exit_code: None while it runs; negative for the signal that ended it.
        progress: the last round that a worker has reported.
        reported: time of that report (time.monotonic); before the first one, that of the start.
        terminated: whether launch has terminated it.
        events: events that it has reported: kind → facts, including the time "at" (time.monotonic).
    """

    def __init__(
        self,
        spec: ProcessSpec,
        log: Path,
        process_line: Callable[[str, str, str], None],
        notify: Callable[[str], None],
        restarted: bool = False,
    ) -> None:
        self.spec, self.log, self._process_line, self._notify = spec, log, process_line, notify
        self.exit_code: int | None = None
        self.progress: Progress | None = None
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._passing = False  # whether the last line is a state of a progress bar, which the next one replaces
        self.terminated = self._preempted = False
        self.events: dict[str, dict[str, Any]] = {}
        self._rest = b""
        self._file = LossyFile(log, "ab" if restarted else "wb")
        self._write(f"$ {spec.shell}\n".encode(errors="backslashreplace"))
        self.reported = time.monotonic()
        self._child = ChildProcess(spec)
        self._popen = self._child.popen
        self._awaited = spec.ready
        assert self._popen.stdout is not None
        self.output = self._popen.stdout
        os.set_blocking(self.output.fileno(), False)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines of its output, with only the last state of a progress bar."""
        rest = _CONTROL.sub("", _text(self._rest))
        before = list(self._last_lines)
        if rest and self._passing:
            before.pop()
        return (*before, rest)[-LAST_LINES:] if rest else tuple(before)

    @property
    def running(self) -> bool:
        """Whether its end has not been detected yet."""
        return self.exit_code is None

    @property
    def arrived(self) -> bool:
        """Whether its command has started, so that its host has been reached."""
        return self._child.arrived

    @property
    def settled(self) -> bool:
        """Whether a replacement is complete: a worker has joined, another process is ready."""
        return progress.JOINED in self.events if self.spec.role == "worker" else self.arrived and not self._awaited

    @property
    def cut_off(self) -> bool:
        """Whether it ended because a connection was lost: launch's to its host, or its own to the servers."""
        return self._connection_lost or progress.CUT_OFF in self.events

    @property
    def failed_after_another(self) -> bool:
        """Whether it has reported that it ended because another process had failed."""
        over = self.events.get(progress.OVER, {})
        return progress.CUT_OFF in self.events or bool(over.get("consequence"))

    @property
    def error(self) -> ProgramError | None:
        """The exception that it has reported as the reason of its end after joining, or None."""
        failed, joined = self.events.get(progress.FAILED), self.events.get(progress.JOINED)
        if failed is None or joined is None:
            return None
        return ProgramError(failed["reason"], failed["exchanges"] - joined["exchanges"])

    @property
    def gives_up(self) -> bool:
        """Whether it has reported that it ends because of its own error."""
        return progress.OVER in self.events and not self.failed_after_another

    @property
    def _connection_lost(self) -> bool:
        """Whether ssh has ended because its connection was lost."""
        return self.exit_code == ssh.NO_CONNECTION and not self.spec.host.local

    @property
    def ready(self) -> bool:
        """Whether the next process may start: this one has printed the awaited line, if any."""
        return not self._awaited and self._child.room

    @property
    def how_it_ended(self) -> str:
        """Its exit code or signal in words that follow its name."""
        if self._connection_lost:
            return f"has lost its connection to {self.spec.host.address} (ssh ended with exit code {self.exit_code})"
        if self.exit_code == 0 and self.spec.is_user_program and progress.JOINED not in self.events:
            return "ended before it took part in the training (no esync.Trainer has found the others)"
        if self.exit_code is None or self.exit_code >= 0:
            return f"ended with exit code {self.exit_code}"
        number = -self.exit_code
        name = signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
        hint = " (by somebody, or by the kernel for want of memory)" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"

    def read(self) -> bool:
        """Read the output that has arrived, up to a limit; return False after its end."""
        for _ in range(CHUNKS):
            try:
                chunk = os.read(self.output.fileno(), CHUNK)
            except BlockingIOError:
                return True
            if not chunk:
                self._handle_rest()
                self.output.close()
                return False
            *lines, self._rest = _END.split(self._rest + chunk)
            for line in lines:
                self._handle(line)
            if len(self._rest) >= CHUNK:
                self._handle_rest()
        return True

    def poll(self) -> bool:
        """Return True once, when the process has ended, and kill the rest of its process group."""
        if self.exit_code is not None:
            return False
        if os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        os.killpg(self._popen.pid, signal.SIGKILL)  # its id is not reused before it is reaped
        self.exit_code = self._child.exit_code(self._popen.wait())
        if not self.output.closed and self.read():  # another process holds the pipe open
            self._handle_rest()
        return True

    def terminate(self) -> None:
        """Ask the process to end."""
        if self.running:
            self.terminated = True
            self._child.terminate()

    def preempt(self) -> None:
        """Tell the process once that its machine will be taken away."""
        if self.running and not self._preempted:
            self._preempted = True
            self._child.preempt()

    def kill(self) -> None:
        """Kill the process and all its descendants."""
        if self.running:
            self.terminated = True
            self._child.kill()

    def close(self) -> None:
        """Close its pipe and its log, and abandon it if it still runs."""
        if self.running:
            self._child.abandon()
        self.output.close()
        if self._file.missing and not self._file.closed:
            self._notify(f"{self._file.missing} bytes of output are missing in {self.log}: {self._file.why}")
        self._file.close()

    def _handle_rest(self) -> None:
        self._handle(self._rest)
        self._rest = b""

    def _handle(self, line: bytes) -> None:
        """Store a report of progress or an event; write any other line to the log."""
        if not line:
            return
        text = _text(line)
        if self._child.reports_start(text):
            return
        if self._awaited and text.startswith(self._awaited):
            self._awaited = ""
        before, report = progress.split(text)
        if report and self._store_report(report):
            text, line = before, f"{before}\n".encode()
            if not before:
                return
        self._write(line)
        if self.spec.is_user_program:  # such a program may print lines without reporting rounds
            self.reported = time.monotonic()
        if text:
            if self._passing:
                self._last_lines.pop()
            self._last_lines.append(_CONTROL.sub("", text))
            self._passing = line.endswith(b"\r")
            self._process_line(self.spec.name, text, "\r" if self._passing else "\n")

    def _store_report(self, text: str) -> bool:
        """Store a report of progress or an event; return whether the text is one."""
        report, event = progress.parse(text), progress.parse_event(text)
        if report is not None:
            self.progress, self.reported = report, time.monotonic()
        elif event is not None:
            self.events[event["kind"]] = {**event, "at": time.monotonic()}
            if event["kind"] in (progress.ASIDE, progress.SETTINGS, progress.WARNING) and event.get("text"):
                self._notify(f"{self.spec.name} ({self.spec.where}): {event['text']}")
        return report is not None or event is not None

    def _write(self, line: bytes) -> None:
        """Write a line to the log, unless the disk is full."""
        missing = self._file.missing
        self._file.write(line)
        if self._file.missing and not missing:
            self._notify(
                f"cannot write {self.log}: {self._file.why}; the job goes on, and its output is left out there"
            )


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip()
