"""Run many simulations in parallel processes; failures are returned, not raised."""

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
        reason: the error message.
        usage: whether the description and the flags do not make a job.
    """

    reason: str
    usage: bool


@contextlib.contextmanager
def pool(at_a_time: int | None, tasks: int, modes: Collection[str] = ()) -> Iterator[Executor]:
    """Start processes for simulations, which end with the `with` block.

    Args:
        at_a_time: number of processes; None: the number of cores that this process may use.
        tasks: number of simulations, an upper limit to the number of processes.
        modes: modes of all simulations, which may be the user's own algorithms.
    """
    processes = max(1, min(at_a_time or cores(), tasks))
    with ProcessPoolExecutor(processes, get_context("spawn"), _load, (sorted(modes),)) as executor:
        try:
            yield executor
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)  # tasks that have not begun are dropped
            raise


def outcomes(
    executor: Executor, work: Callable[[TaskT], ResultT], tasks: Sequence[TaskT]
) -> Iterator[ResultT | Failed]:
    """Yield the result or the failure of each task, in the order of the tasks."""
    under_way = [executor.submit(_attempt, work, task) for task in tasks]
    for future in under_way:
        try:
            yield future.result()
        except BrokenProcessPool:
            yield Failed("its process, or one beside it, was ended from outside (out of memory?)", False)


def _load(modes: Collection[str]) -> None:
    """Load the algorithms of all simulations, whose options the description may hold."""
    for text in modes:
        with contextlib.suppress(AlgorithmError):  # reported by the simulation
            find(text)


def _attempt(work: Callable[[TaskT], ResultT], task: TaskT) -> ResultT | Failed:
    """Run one task; return errors as text, because not every exception can be pickled."""
    try:
        return work(task)
    except ExpectedError as error:
        return Failed(str(error), isinstance(error, DescriptionError))
    except OSError as error:
        return Failed(f"{error.filename or 'failed'}: {error.strerror or error}", False)
    except Exception as error:  # a bug in this program must not end the other simulations
        return Failed(f"{type(error).__name__}: {error}", False)
