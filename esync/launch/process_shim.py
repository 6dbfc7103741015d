"""One process of a job, tied to launch: neither it nor any of its descendants outlives launch.

`esync.launch.process_shim` is what launch starts for every process, on this machine directly and on
another one over ssh. It reads one line of JSON, {"command": [...], "lease": seconds, "grace":
seconds}, runs the command in a process group of its own with its output going straight on, and ends
as it ended: with its exit code, or 128 + the number of the signal, as shells have it; where launch
is gone, as an ssh without a connection does. Then it ends every descendant, those included that
have left the process group.
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

from ..runtime.processes import tied
from .heartbeat_pipe import KILL, NO_CONNECTION, TERMINATE, OrderReader

#: Printed when the command is about to start.
GREETING = "@started"
#: Largest exit code; what lies above it is ssh's own.
MOST = 254
TICK = 1.0
#: Seconds to wait for the request.
FIRST_REQUEST = 30.0
#: Seconds that killed processes have to disappear.
SWEEP = 3.0
_PR_SET_CHILD_SUBREAPER = 36


class ShimmedProcess:
    """The command, while it runs."""

    def __init__(self, command: list[str]) -> None:
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
        )

    def _hear(self, *_: object) -> None:
        self.told = True

    @staticmethod
    def _adopt_orphans() -> None:
        """Become the parent of descendants whose own parent ends (Linux): so none of them can get away."""
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def awake(self) -> None:
        """Forget the signals that have woken this process."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)

    def ended(self) -> bool:
        """Return whether the command has ended; it is not reaped yet, so that its number stays its own.

        Orphans are: a long job may have as many of them as a machine has process ids.
        """
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid == self._popen.pid:
                return True
            os.waitpid(found.si_pid, 0)
        return False

    def terminate(self) -> None:
        """Ask it to end."""
        os.kill(self._popen.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it by force, and its process group."""
        os.killpg(self._popen.pid, signal.SIGKILL)

    def finish(self) -> int:
        """End all that it has left behind; the exit code for ssh."""
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
    """Process ids of this process's children, those included that have ended and wait to be reaped."""
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
    """Run what standard input asks for; return the exit code."""
    reader = OrderReader()
    try:
        asked = json.loads(reader.line(FIRST_REQUEST) or b"")
        (program, *words), lease, grace = asked["command"], float(asked["lease"]), float(asked["grace"])
    except (ValueError, KeyError, TypeError):
        return 1
    print(GREETING, flush=True)
    process = ShimmedProcess([os.path.expanduser(program), *words])
    cut_off = False
    try:
        cut_off = _attend(process, reader, lease, grace)
    finally:
        code = process.finish()
    return NO_CONNECTION if cut_off else code


def _attend(process: ShimmedProcess, reader: OrderReader, lease: float, grace: float) -> bool:
    """Until the command has ended: by itself, because launch wants it to, or because launch is gone (True)."""
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
