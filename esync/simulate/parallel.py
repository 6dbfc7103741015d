"""Many simulations at a time, in processes of their own, whose failures are reported and not raised."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TypeVar

from ..algorithms.loading import AlgorithmError, find
from ..launch.description import DescriptionError
from ..runtime.cores import cores
from ..runtime.errors import ExpectedError

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Failed:
    """A simulation that could not be run.

    Attributes:
        reason: why, as an error message.
        usage: whether what was asked for does not make a job at all.
    """

    reason: str
    usage: bool


@contextlib.contextmanager
def pool(at_a_time: int | None, tasks: int, modes: Collection[str] = ()) -> Iterator[Executor]:
    """Return processes for simulations, which end with the `with` block.

    Args:
        at_a_time: number of processes; None: as many as this process may use cores.
        tasks: number of simulations, which no more processes are needed for.
        modes: modes of all simulations, whose algorithms may be the user's own.
    """
    processes = max(1, min(at_a_time or cores(), tasks))
    with ProcessPoolExecutor(processes, get_context("spawn"), _load, (sorted(modes),)) as executor:
        try:
            yield executor
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)  # what has not begun is of no use any more
            raise


def outcomes(
    executor: Executor, work: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]
) -> Iterator[ResultT | Failed]:
    """Yield the result of each task, in the order of the tasks, or why it has failed."""
    under_way = [executor.submit(_attempt, work, task) for task in tasks]
    for future in under_way:
        try:
            yield future.result()
        except BrokenProcessPool:
            yield Failed("its process, or one beside it, was ended from outside (out of memory?)", False)


def _load(modes: Collection[str]) -> None:
    """Load the algorithms of all simulations, whose options the description may hold."""
    for text in modes:
        with contextlib.suppress(AlgorithmError):  # told by the simulation itself
            find(text)


def _attempt(work: Callable[[TaskT], ResultT], task: TaskT) -> ResultT | Failed:
    """Do one task.

    Errors are returned as text, because not every exception can be passed between processes.
    """
    try:
        return work(task)
    except ExpectedError as error:
        return Failed(str(error), isinstance(error, DescriptionError))
    except OSError as error:
        return Failed(f"{error.filename or 'failed'}: {error.strerror or error}", False)
    except Exception as error:  # a bug in this program: the others are simulated all the same
        return Failed(f"{type(error).__name__}: {error}", False)
