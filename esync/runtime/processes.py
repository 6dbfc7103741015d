"""Child processes: they end with their parent, and yield the processor to urgent ones.

As a program, `python processes.py PARENT COMMAND …` runs a command that ends with the process
PARENT.
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

#: File with the niceness of a session's group of processes. Where Linux makes such groups, for fair
#: shares of the processor, a process's own niceness ranks it only within its group.
GROUP_NICENESS = "/proc/{}/autogroup"
#: Niceness of the process that evaluates. On a machine whose cores are all busy it still gets about
#: a tenth of one, so that the accuracy arrives eventually.
EVALUATING = 10
#: Step time in seconds up to which an emulated device has no time to spare.
NOTHING_TO_SPARE = 0.25
#: Steps of nice for each doubling of the step time.
PER_DOUBLING = 2


def niceness_of_emulated(step_time: float | None) -> int:
    """Return the niceness of a worker whose iterations are padded to `step_time` seconds.

    The longer its steps are, the longer its computing can wait for that of other devices, which are
    emulated on the same cores, without being late. It is always more urgent than an evaluation.
    """
    if step_time is None or step_time <= NOTHING_TO_SPARE:
        return 0
    return min(EVALUATING - 1, round(PER_DOUBLING * math.log2(step_time / NOTHING_TO_SPARE)))


def set_niceness(niceness: int, process: int = 0) -> None:
    """Lower the priority of a process by that many steps of niceness.

    Args:
        niceness: steps to add.
        process: its id, as long as it has a single thread; 0 stands for this process with all its
            threads. Threads that start later inherit the priority.
    """
    if niceness == 0:
        return
    for thread in [process] if process else map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(ProcessLookupError):  # a thread that has ended meanwhile
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)
    number = process or os.getpid()
    if os.getsid(number) == number:  # else the group has other members, such as the user's shell
        with contextlib.suppress(OSError):  # a kernel without such groups
            Path(GROUP_NICENESS.format(number)).write_text(str(niceness))


_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Have the kernel end this process when its parent ends (Linux).

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
    """Have processes that `multiprocessing` forks from now on die with this one, however it ends.

    Those of a DataLoader, for instance, end by themselves where they wait for work, but not in the
    middle of a batch. Until then they hold copies of this process's connections, by which others
    tell whether it is there. Only for the main thread's: Linux counts the end of the thread that
    has forked as the parent's.
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
