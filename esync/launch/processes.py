"""One process of a job: started, listened to, its output kept in a file, and ended with everything that it started."""

import os
import signal
import subprocess
import time
from collections import deque
from pathlib import Path
from typing import Protocol

from .. import progress
from ..errors import ExpectedError
from ..parenthood import tied
from ..progress import Progress
from .hosts import Host
from .spec import ProcessSpec

#: Lines of a process's output that are kept for the message about its failure.
LAST_LINES = 12
#: Bytes that are read at once, and the length at which a line that does not end is taken for one.
CHUNK = 65536
#: How often that is done before somebody else has a turn: some programs never stop printing.
CHUNKS = 16


class UnreachableHostError(ExpectedError):
    """Nothing can be started on a host."""


class Runner(Protocol):
    """Knows how to start a command on a host."""

    def start(self, spec: ProcessSpec) -> "subprocess.Popen[bytes]":
        """Start it as the leader of a process group of this machine, its output in the pipe `stdout`.

        It ends when this process ends, however that comes about.
        """


class LocalRunner:
    """Starts processes of this machine."""

    def start(self, spec: ProcessSpec) -> "subprocess.Popen[bytes]":
        """See `Runner.start`; main thread only, because the kernel ties a child to the thread that started it."""
        return subprocess.Popen(
            tied(spec.command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **spec.environment},
            start_new_session=True,
        )


def runner(host: Host) -> Runner:
    """What starts processes on a host.

    Raises:
        UnreachableHostError: it is another machine.
    """
    if host.here:
        return LocalRunner()
    raise UnreachableHostError(
        f"host {host.name} (address {host.address}) is not this machine, and launch cannot reach other machines yet "
        "(ssh is not available); --dry-run prints the commands to start there by hand, and an address localhost under "
        f"hosts makes this machine stand for it: hosts: {{{host.name}: {{address: localhost}}}}"
    )


class Process:
    """A process that has been started.

    Args:
        spec: what to start.
        log: file for its output.

    Attributes:
        exit_code: None while it runs; negative for the signal that ended it.
        ready: whether it has printed that the next ones may start.
        progress: the last round of a worker.
        reported: when that came (time.monotonic); before that, when the process started.
        last_lines: the end of its output.
        told_to_end: whether launch has ended it.
    """

    def __init__(self, spec: ProcessSpec, log: Path) -> None:
        self.spec, self.log = spec, log
        self.exit_code: int | None = None
        self.ready = not spec.ready
        self.progress: Progress | None = None
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.told_to_end = False
        self._rest = b""
        self._file = open(log, "wb", buffering=0)  # noqa: SIM115 - stays open as long as the process
        self._file.write(f"$ {spec.shell}\n".encode())
        self.reported = time.monotonic()
        self._popen = runner(spec.host).start(spec)
        assert self._popen.stdout is not None
        self.output = self._popen.stdout
        os.set_blocking(self.output.fileno(), False)

    @property
    def running(self) -> bool:
        """Whether it has not ended yet, as far as is known."""
        return self.exit_code is None

    @property
    def how_it_ended(self) -> str:
        """Its exit code or signal in words."""
        if self.exit_code is None or self.exit_code >= 0:
            return f"ended with exit code {self.exit_code}"
        name = signal.Signals(-self.exit_code).name
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
        self.exit_code = self._popen.wait()
        if not self.output.closed and self.read():  # somebody else still has the pipe
            self._take(self._rest)
            self._rest = b""
        return True

    def terminate(self) -> None:
        """Ask it to end."""
        if self.running:
            self.told_to_end = True
            self._popen.terminate()

    def kill(self) -> None:
        """End it, and all that it has started."""
        if self.running:
            self.told_to_end = True
            os.killpg(self._popen.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of its pipe and its log, when it has ended."""
        self.output.close()
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
        self._file.write(line)
        if text:
            self.last_lines.append(text)
        if self.spec.ready and text.startswith(self.spec.ready):
            self.ready = True
