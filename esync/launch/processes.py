"""A process of a job: start it, read its output into a log, and end it with all its descendants."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..runtime import progress
from ..runtime.output import LossyFile
from ..runtime.progress import Progress
from . import ssh
from .process_backend import ChildProcess
from .spec import ProcessSpec

#: Lines of a process's output that are kept for the message about its failure.
LAST_LINES = 12
#: Bytes that are read at once, and the length at which a line that does not end is taken for one.
CHUNK = 65536
#: How often that is done before somebody else has a turn: some programs never stop printing.
CHUNKS = 16


class Process:
    """A process that has been started.

    Args:
        spec: what to start.
        log: file for its output.
        process_line: called with its name and every line of its output.
        say: told what the user has to know.
        again: it is not the first one of this name: its output goes behind that of the others.

    Attributes:
        exit_code: None while it runs; negative for the signal that ended it.
        progress: the last round of a worker.
        reported: when that came (time.monotonic); before that, when the process started.
        last_lines: the end of its output.
        told_to_end: whether launch has ended it.
        events: what it has told about itself, kind → its facts, with "at", the time
            (time.monotonic).
    """

    def __init__(
        self,
        spec: ProcessSpec,
        log: Path,
        process_line: Callable[[str, str], None],
        say: Callable[[str], None],
        again: bool = False,
    ) -> None:
        self.spec, self.log, self._process_line, self._say = spec, log, process_line, say
        self.exit_code: int | None = None
        self.progress: Progress | None = None
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.told_to_end = False
        self.events: dict[str, dict[str, Any]] = {}
        self._rest = b""
        self._file = LossyFile(log, "ab" if again else "wb")
        self._write(f"$ {spec.shell}\n".encode())
        self.reported = time.monotonic()
        self._child = ChildProcess(spec)
        self._popen = self._child.popen
        self._awaited = spec.ready
        assert self._popen.stdout is not None
        self.output = self._popen.stdout
        os.set_blocking(self.output.fileno(), False)

    @property
    def running(self) -> bool:
        """Whether it has not ended yet, as far as is known."""
        return self.exit_code is None

    @property
    def arrived(self) -> bool:
        """Whether its host has been reached, as far as is known."""
        return self._child.arrived

    @property
    def settled(self) -> bool:
        """Whether a replacement has taken its place: a worker has joined, another process is ready."""
        return progress.JOINED in self.events if self.spec.role == "worker" else self.arrived and not self._awaited

    @property
    def cut_off(self) -> bool:
        """Whether it has ended because a connection was lost: launch's to its host, or its own to the servers."""
        return self._connection_lost or progress.CUT_OFF in self.events

    @property
    def _connection_lost(self) -> bool:
        """Whether ssh has ended because its connection was lost."""
        return self.exit_code == ssh.NO_CONNECTION and not self.spec.host.here

    @property
    def ready(self) -> bool:
        """Whether the next ones may start: it has printed so, where that is awaited."""
        return not self._awaited and self._child.room

    @property
    def how_it_ended(self) -> str:
        """Its exit code or signal in words."""
        if self._connection_lost:
            return f"has lost its connection to {self.spec.host.address} (ssh ended with exit code {self.exit_code})"
        if self.exit_code is None or self.exit_code >= 0:
            return f"ended with exit code {self.exit_code}"
        number = -self.exit_code
        name = signal.Signals(number).name if number in {each.value for each in signal.Signals} else f"signal {number}"
        hint = " (by somebody, or by the kernel for want of memory)" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"

    def read(self) -> bool:
        """Take what it has printed meanwhile, up to a limit; False when there will be nothing more."""
        for _ in range(CHUNKS):
            try:
                chunk = os.read(self.output.fileno(), CHUNK)
            except BlockingIOError:
                return True
            if not chunk:
                self._take(self._rest)
                self.output.close()
                return False
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                self._take(line + b"\n")
            if len(self._rest) >= CHUNK:
                self._take(self._rest)
                self._rest = b""
        return True

    def poll(self) -> bool:
        """Look whether it has ended; True once, when it has. What is left of its group is ended then, too."""
        if self.exit_code is not None:
            return False
        if os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        os.killpg(self._popen.pid, signal.SIGKILL)  # nobody else has this number before the leader is reaped
        self.exit_code = self._child.exit_code(self._popen.wait())
        if not self.output.closed and self.read():  # somebody else still has the pipe
            self._take(self._rest)
            self._rest = b""
        return True

    def terminate(self) -> None:
        """Ask the process to end."""
        if self.running:
            self.told_to_end = True
            self._child.terminate()

    def kill(self) -> None:
        """Kill the process and all its descendants."""
        if self.running:
            self.told_to_end = True
            self._child.kill()

    def close(self) -> None:
        """Let go of it, its pipe and its log, when it has ended or does not seem to."""
        if self.running:
            self._child.let_go()
        self.output.close()
        if self._file.missing and not self._file.closed:
            self._say(f"{self._file.missing} bytes of output are missing in {self.log}: {self._file.why}")
        self._file.close()

    def _take(self, line: bytes) -> None:
        """Progress is kept, all else goes to the log."""
        if not line:
            return
        text = line.decode(errors="replace").rstrip()
        report = progress.parse(text)
        if report is not None:
            self.progress, self.reported = report, time.monotonic()
            return
        if self._child.greeted(text):
            return
        if self._awaited and text.startswith(self._awaited):
            self._awaited = ""
        event = progress.parse_event(text)
        if event is not None:
            self.events[event["kind"]] = {**event, "at": time.monotonic()}
            return
        self._write(line)
        if text:
            self.last_lines.append(text)
            self._process_line(self.spec.name, text)

    def _write(self, line: bytes) -> None:
        """Keep a line in the log, where there is space for it."""
        missing = self._file.missing
        self._file.write(line)
        if self._file.missing and not missing:
            self._say(f"cannot write {self.log}: {self._file.why}; the job goes on, and its output is left out there")
