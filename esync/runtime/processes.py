"""Child processes that end with their parent, and priorities of processes.

As a program, `python processes.py PARENT COMMAND …` runs a command that ends with the process PARENT.
"""

import contextlib
import ctypes
import math
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

#: File with the niceness of a session's autogroup. If Linux schedules by autogroups, a process's own
#: niceness is relative to its group only.
GROUP_NICENESS = "/proc/{}/autogroup"
#: Niceness of the process that evaluates. If all cores are busy, it still gets about a tenth of one.
EVALUATING = 10
#: Step time in seconds up to which an emulated device has no spare time.
NOTHING_TO_SPARE = 0.25
#: Steps of nice for each doubling of the step time.
PER_DOUBLING = 2


def niceness_of_emulated(step_time: float | None) -> int:
    """Return the niceness of a worker whose iterations are padded to `step_time` seconds.

    The longer its steps, the longer it can wait for other devices that are emulated on the same cores
    without being late. Its priority is always higher than that of an evaluation.
    """
    if step_time is None or step_time <= NOTHING_TO_SPARE:
        return 0
    return min(EVALUATING - 1, round(PER_DOUBLING * math.log2(step_time / NOTHING_TO_SPARE)))


def set_niceness(niceness: int, process: int = 0) -> None:
    """Lower the priority of a process.

    Args:
        niceness: number of steps to add to its niceness.
        process: id of a process with a single thread; 0 means this process with all its threads.
            Threads that start later inherit the priority.
    """
    if niceness == 0:
        return
    for thread in [process] if process else map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(ProcessLookupError):  # a thread that has ended meanwhile
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)
    number = process or os.getpid()
    if os.getsid(number) == number:  # otherwise the group has other members, such as the user's shell
        with contextlib.suppress(OSError):  # a kernel without such groups
            Path(GROUP_NICENESS.format(number)).write_text(str(niceness))


_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Let the kernel end this process when its parent ends (Linux).

    If the parent has ended already, the process ends at once.

    Args:
        parent: process id of the parent that has started this process.
        number: the signal that ends this process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def bind_children() -> None:
    """Let processes that `multiprocessing` forks from now on end with this one, however it ends.

    Workers of a DataLoader, for instance, end by themselves only when they wait for work. Until then
    they hold copies of this process's connections, by which others conclude that it is alive. This
    applies to forks of the main thread only: for Linux, the parent ends with the thread that has forked.
    """
    from multiprocessing import parent_process, util

    def bind(main: threading.Thread) -> None:
        parent = parent_process()
        if threading.current_thread() is main and parent is not None and parent.pid is not None:
            die_with_parent(parent.pid, signal.SIGKILL)

    util.register_after_fork(threading.main_thread(), bind)


def tied(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` in the same process, tied to the calling process.

    It starts this file by its path, so that neither the package nor site-packages is imported.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(parent: str, *command: str) -> int:
    """Become `command`, tied to the process `parent`."""
    die_with_parent(int(parent))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
