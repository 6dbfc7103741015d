"""The algorithm of a program: its own choice, or that of whoever starts it."""

import json

from ..runtime.environment import EnvironmentProblemError
from ..runtime.worker_environment import ALGORITHM_VARIABLE, WorkerEnvironment
from . import Algorithm, find, make

#: The algorithm where neither the program nor the environment names one.
DEFAULT_ALGORITHM = "esync"


def resolve_algorithm(argument: str | Algorithm | None) -> Algorithm:
    """Return the program's algorithm, or else the environment's, or else the default.

    Raises:
        EnvironmentProblemError: both name one, and not the same.
    """
    environment = WorkerEnvironment.read()
    outside, options = environment.algorithm, environment.algorithm_options or {}
    if not argument:
        return find(outside or DEFAULT_ALGORITHM)(**options)
    algorithm = make(argument)
    if outside and (options or make(outside).name != algorithm.name):
        chosen = f"{outside!r}{f' with the options {json.dumps(options)}' if options else ''}"
        raise EnvironmentProblemError(
            f"{ALGORITHM_VARIABLE} (esync launch -m or --preset, or mode in its description) is {chosen}, but the "
            f"program gives its Trainer the algorithm {algorithm.name!r}: leave algorithm= out of the program where it "
            f"is to be chosen from outside, or type -m {algorithm.name} without its options"
        )
    return algorithm
