"""How readily a process leaves the processor to others, on a machine where several of them share it."""

import contextlib
import math
import os
from pathlib import Path

#: Where Linux groups the processes of each session for a fair share of the processor, niceness only ranks them within
#: their group; this is the file with the niceness of the group itself.
GROUP_NICENESS = "/proc/{}/autogroup"
#: Of the process that evaluates: on a machine whose cores are all busy it still gets about a tenth of one, so that the
#: accuracy arrives some day.
EVALUATING = 10
#: An emulated device with steps of this many seconds or fewer has nothing to spare.
NOTHING_TO_SPARE = 0.25
#: Steps of nice for each doubling of the step time.
PER_DOUBLING = 2


def of_emulated(step_time: float | None) -> int:
    """The niceness of a worker whose iterations are padded to `step_time` seconds.

    The longer its steps, the longer its computing may wait for that of others that are emulated on the same cores
    without being late. Always more urgent than an evaluation.
    """
    if step_time is None or step_time <= NOTHING_TO_SPARE:
        return 0
    return min(EVALUATING - 1, round(PER_DOUBLING * math.log2(step_time / NOTHING_TO_SPARE)))


def stand_back(niceness: int, process: int = 0) -> None:
    """Lower the priority of a process, by so many steps of nice.

    Args:
        niceness: so many.
        process: its id, while it has a single thread; 0: the calling thread. The threads that start later inherit it.
    """
    if niceness == 0:
        return
    os.setpriority(os.PRIO_PROCESS, process, os.getpriority(os.PRIO_PROCESS, process) + niceness)
    number = process or os.getpid()
    if os.getsid(number) == number:  # else the group has other members: the user's shell, for instance
        with contextlib.suppress(OSError):  # a kernel without such groups
            Path(GROUP_NICENESS.format(number)).write_text(str(niceness))
