"""From the environment to a collective: is this process one of an MPI job, and does that fit what else is said?"""

import os
from collections.abc import Callable

from ... import config
from ...runtime.environment import EnvironmentProblemError
from ...runtime.watchdog import Watchdog
from ..base import Exchange
from ..protocol.specification import Specification
from .auto import AutoEngine
from .engine import Engine
from .mpi import MPITransport, started_by_mpi
from .worker_exchange import CollectiveExchange


def check_start(collective: str) -> None:
    """Whether this process can be a rank.

    Raises:
        EnvironmentProblemError: no MPI has started it.
    """
    if not started_by_mpi():
        raise EnvironmentProblemError(
            f"--collective {collective}: this process was not started by MPI; start all workers together, for instance "
            f"mpiexec -n 1 python -m esync.worker -g 0 --collective {collective} : "
            f"-n 1 python -m esync.worker -c 1 --collective {collective}"
        )


def over_mpi(
    specification: Specification,
    collective: str,
    watchdog: Watchdog,
    start_timeout: float = config.START_TIMEOUT,
    round_timeout: float = config.ROUND_TIMEOUT,
    hold: Callable[[], None] = lambda: None,
) -> Exchange:
    """Meet the other ranks; the arguments are those of `CollectiveExchange`.

    Raises:
        EnvironmentProblemError: no MPI has started this process, or not as many as DMLC_NUM_WORKER says.
        MPIMissingError: there is no MPI.
    """
    check_start(collective)
    with watchdog.waiting("MPI to connect all workers", start_timeout, "were all of them started?"):
        transport = MPITransport()
    said = os.environ.get("DMLC_NUM_WORKER")
    if said is not None and said != str(transport.size):
        raise EnvironmentProblemError(
            f"DMLC_NUM_WORKER is {said}, but MPI has started {transport.size} worker(s): they should be the same"
        )
    engine = AutoEngine(transport) if collective == "auto" else Engine(collective, transport)
    return CollectiveExchange(specification, engine, watchdog, start_timeout, round_timeout, hold)
