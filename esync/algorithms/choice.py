"""The algorithm of a program: its own choice, or that of whoever starts it."""

from ..runtime.environment import EnvironmentProblemError
from ..runtime.worker_environment import ALGORITHM_VARIABLE, WorkerEnvironment
from . import Algorithm, make

#: The algorithm where neither the program nor the environment names one.
DEFAULT_ALGORITHM = "esync"


def resolve_algorithm(given: str | Algorithm | None) -> Algorithm:
    """Return the program's algorithm, or else the environment's, or else the default.

    Raises:
        EnvironmentProblemError: both name one, and not the same.
    """
    outside = WorkerEnvironment.read().algorithm
    algorithm = make(given or outside or DEFAULT_ALGORITHM)
    if outside and given and make(outside).name != algorithm.name:
        raise EnvironmentProblemError(
            f"{ALGORITHM_VARIABLE} (esync launch -m, or mode in its description) is {outside!r}, but the program gives "
            f"its Trainer the algorithm {algorithm.name!r}: leave algorithm= out of the program where it is to be "
            f"chosen from outside, or type -m {algorithm.name}"
        )
    return algorithm
