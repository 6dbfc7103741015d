"""Child processes: they end with their parent, and leave the processor to more urgent ones.

As a program, `python processes.py PARENT COMMAND …` runs any command tied to the process PARENT.
"""

import contextlib
import ctypes
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

#: Where Linux groups the processes of each session for a fair share of the processor, niceness only
#: ranks them within their group; this is the file with the niceness of the group itself.
GROUP_NICENESS = "/proc/{}/autogroup"
#: Of the process that evaluates: on a machine whose cores are all busy it still gets about a tenth
#: of one, so that the accuracy arrives some day.
EVALUATING = 10
#: An emulated device with steps of this many seconds or fewer has nothing to spare.
NOTHING_TO_SPARE = 0.25
#: Steps of nice for each doubling of the step time.
PER_DOUBLING = 2


def niceness_of_emulated(step_time: float | None) -> int:
    """Return the niceness of a worker whose iterations are padded to `step_time` seconds.

    The longer its steps, the longer its computing may wait for that of others that are emulated on
    the same cores without being late. Always more urgent than an evaluation.
    """
    if step_time is None or step_time <= NOTHING_TO_SPARE:
        return 0
    return min(EVALUATING - 1, round(PER_DOUBLING * math.log2(step_time / NOTHING_TO_SPARE)))


def set_niceness(niceness: int, process: int = 0) -> None:
    """Lower the priority of a process by that many steps of nice.

    Args:
        niceness: steps to add.
        process: its id, while it has a single thread; 0: the calling thread. The threads that start
            later inherit it.
    """
    if niceness == 0:
        return
    os.setpriority(os.PRIO_PROCESS, process, os.getpriority(os.PRIO_PROCESS, process) + niceness)
    number = process or os.getpid()
    if os.getsid(number) == number:  # else the group has other members: the user's shell, for instance
        with contextlib.suppress(OSError):  # a kernel without such groups
            Path(GROUP_NICENESS.format(number)).write_text(str(niceness))


_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends (Linux); ends it at once where that has happened already.

    Args:
        parent: the process id of the parent that started us, as the parent knows it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def tied(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` in the same process, tied to the process that calls this.

    It starts this file by its path, so that neither the package nor site-packages is imported on
    the way.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(parent: str, *command: str) -> int:
    """Become `command`; what the kernel was told stays."""
    die_with_parent(int(parent))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
