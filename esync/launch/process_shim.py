"""Shim around one process of a job: neither it nor any of its descendants outlives launch.

Launch starts `esync.launch.process_shim` for every process, on this machine directly and on another
one over ssh. The shim reads one line of JSON, {"command": [...], "environment": {...}, "lease":
seconds, "grace": seconds}, and runs the command in a new process group. The command inherits the
shim's output, and its variables except those that describe another process's role in a job. When
the command has ended by itself, or has been terminated because launch is gone, the shim kills every
descendant, including those that have left the process group. It exits with the command's exit code,
or with 128 + the number of the signal, as a shell does; if launch is gone, with the exit code of an
ssh process that has lost its connection.
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
from .heartbeat_pipe import KILL, NO_CONNECTION, PREEMPT, TERMINATE, OrderReader

#: Line that is printed when the command is about to start.
STARTED = "@started"
#: Largest exit code that the shim passes on; 255 is ssh's own.
MAX_CODE = 254
TICK = 1.0
#: Seconds to wait for the request.
FIRST_REQUEST = 30.0
#: Seconds to wait until killed descendants have disappeared.
SWEEP = 3.0
_PR_SET_CHILD_SUBREAPER = 36


class ShimmedProcess:
    """The command and its descendants."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._adopt_orphans()
        self.wake, write = os.pipe()
        for end in (self.wake, write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self.signalled = False  # whether this process has received a signal
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._popen = subprocess.Popen(
            tied(command),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,  # one stream, which keeps the order of the lines
            start_new_session=True,
            env={**without_part_in_job(), **environment},
        )

    def _note_signal(self, *_: object) -> None:
        self.signalled = True

    @staticmethod
    def _adopt_orphans() -> None:
        """Become the parent of descendants whose parent ends, so that none of them escapes (Linux)."""
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def clear_wakeups(self) -> None:
        """Discard the bytes by which signals have woken this process."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)

    def ended(self) -> bool:
        """Return whether the command has ended, and reap other children that have.

        The command itself is not reaped yet, so that its process id is not reused. Orphans are,
        because those of a long job could exhaust the machine's process ids.
        """
        while child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if child.si_pid == self._popen.pid:
                return True
            os.waitpid(child.si_pid, 0)
        return False

    def terminate(self) -> None:
        """Ask the command to end."""
        os.kill(self._popen.pid, signal.SIGTERM)

    def preempt(self) -> None:
        """Tell the command that its machine will be taken away."""
        os.kill(self._popen.pid, signal.SIGUSR1)

    def kill(self) -> None:
        """Kill the command and its process group."""
        os.killpg(self._popen.pid, signal.SIGKILL)

    def finish(self) -> int:
        """Kill all descendants of the command; return the shim's exit code."""
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
        return 128 - code if code < 0 else min(code, MAX_CODE)


def children() -> list[int]:
    """Return the ids of this process's children, including zombies."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):  # it has ended meanwhile
                # As bytes: the names of processes, of all users, may be no valid text.
                parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[1]
                if int(parent) == os.getpid():
                    pids.append(int(entry.name))
    return pids


def main() -> int:
    """Run the command requested on standard input; return the exit code."""
    reader = OrderReader()
    try:
        request = json.loads(reader.line(FIRST_REQUEST) or b"")
        (program, *words), environment = request["command"], dict(request["environment"])
        lease, grace = float(request["lease"]), float(request["grace"])
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
    """Wait until the command has ended; return whether it was terminated because launch is gone.

    Otherwise it has ended by itself, on an order of launch, or on a signal.
    """
    deadline, cut_off = 0.0, False
    while not process.ended():
        orders = reader.listen(TICK, process.wake)
        process.clear_wakeups()
        if TERMINATE in orders:
            process.terminate()
        if PREEMPT in orders:
            process.preempt()
        if KILL in orders or (deadline and time.monotonic() > deadline):
            process.kill()
        reason = "a signal has come" if process.signalled else reader.connection_lost(lease)
        if reason and not deadline:
            deadline, cut_off = time.monotonic() + grace, not process.signalled
            process.terminate()
            with contextlib.suppress(OSError):  # nobody may be there to read it
                print(f"{reason}: the process is being ended", flush=True)
    return cut_off


if __name__ == "__main__":
    sys.exit(main())
