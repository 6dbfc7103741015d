"""Shim around one process of a job: neither it nor any of its descendants outlives launch.

Launch starts `esync.launch.process_shim` for every process, on this machine directly and on another
one over ssh. The shim reads one line of JSON, {"command": [...], "environment": {...}, "lease":
seconds, "grace": seconds}, and runs the command in a process group of its own, which inherits the
shim's output, and the shim's variables except those of another process's part in a job. When the
command has ended, or has been ended because launch is gone, the shim ends every descendant,
including those that have left the process group. It exits with the command's exit code, or with
128 + the number of the signal, as a shell does; where launch is gone, with the code of an ssh that
has lost its connection.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ..runtime.environment import without_part_in_job
from ..runtime.processes import tied
from .heartbeat_pipe import KILL, NO_CONNECTION, TERMINATE, OrderReader

#: Line that is printed when the command is about to start.
STARTED = "@started"
#: Largest exit code that the shim passes on; 255 is ssh's own.
MOST = 254
TICK = 1.0
#: Seconds to wait for the request.
FIRST_REQUEST = 30.0
#: Seconds that killed descendants have to disappear.
SWEEP = 3.0
_PR_SET_CHILD_SUBREAPER = 36


class ShimmedProcess:
    """The command while it runs, and what it leaves behind."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._adopt_orphans()
        self.wake, write = os.pipe()
        for end in (self.wake, write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self.told = False  # a signal has come for this process itself
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._hear)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._popen = subprocess.Popen(
            tied(command),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,  # in one stream, in which the order of the lines is kept
            start_new_session=True,
            env={**without_part_in_job(), **environment},
        )

    def _hear(self, *_: object) -> None:
        self.told = True

    @staticmethod
    def _adopt_orphans() -> None:
        """Adopt descendants whose own parent ends, so that none of them can escape (Linux)."""
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def awake(self) -> None:
        """Discard the bytes by which signals have woken this process."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)

    def ended(self) -> bool:
        """Return whether the command has ended, and reap other children that have.

        The command itself is not reaped yet, so that nobody else gets its process id. Orphans are,
        because a long job may leave as many of them behind as the machine has process ids.
        """
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid == self._popen.pid:
                return True
            os.waitpid(found.si_pid, 0)
        return False

    def terminate(self) -> None:
        """Ask the command to end."""
        os.kill(self._popen.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the command and its process group."""
        os.killpg(self._popen.pid, signal.SIGKILL)

    def finish(self) -> int:
        """Kill everything that the command has left behind; return the shim's exit code."""
        self.kill()
        code = self._popen.wait()
        limit = time.monotonic() + SWEEP
        while time.monotonic() < limit:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:  # nobody is left
                break
            for number in children():
                os.kill(number, signal.SIGKILL)
            time.sleep(0.01)
        return 128 - code if code < 0 else min(code, MOST)


def children() -> list[int]:
    """Return the ids of this process's children, including those that wait to be reaped."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):  # it has ended meanwhile
                # In bytes: a process may have any name, and anybody's is listed here.
                parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[1]
                if int(parent) == os.getpid():
                    found.append(int(entry.name))
    return found


def main() -> int:
    """Run the command that standard input asks for; return the exit code."""
    reader = OrderReader()
    try:
        asked = json.loads(reader.line(FIRST_REQUEST) or b"")
        (program, *words), environment = asked["command"], dict(asked["environment"])
        lease, grace = float(asked["lease"]), float(asked["grace"])
    except (ValueError, KeyError, TypeError):
        return 1
    print(STARTED, flush=True)
    process = ShimmedProcess([os.path.expanduser(program), *words], environment)
    cut_off = False
    try:
        cut_off = _attend(process, reader, lease, grace)
    finally:
        code = process.finish()
    return NO_CONNECTION if cut_off else code


def _attend(process: ShimmedProcess, reader: OrderReader, lease: float, grace: float) -> bool:
    """Wait until the command has ended; return whether it had to because launch is gone.

    It may also end by itself, because launch orders it, or because a signal has come.
    """
    deadline, cut_off = 0.0, False
    while not process.ended():
        orders = reader.listen(TICK, process.wake)
        process.awake()
        if TERMINATE in orders:
            process.terminate()
        if KILL in orders or (deadline and time.monotonic() > deadline):
            process.kill()
        reason = "a signal has come" if process.told else reader.connection_lost(lease)
        if reason and not deadline:
            deadline, cut_off = time.monotonic() + grace, not process.told
            process.terminate()
            with contextlib.suppress(OSError):  # nobody may be there to read it
                print(f"{reason}: the process is being ended", flush=True)
    return cut_off


if __name__ == "__main__":
    sys.exit(main())
