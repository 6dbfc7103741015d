"""A worker's request for a rank, which it makes before ps-lite registers it.

ps-lite's registration has no room for it. So the worker tells the scheduler in a message of its
own at which address it will listen, and which rank it wants. It chooses the port itself for that,
and keeps it free until ps-lite takes it.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ...runtime.environment import SLOT_VARIABLE, Cluster, EnvironmentProblemError
from ...runtime.worker_environment import WorkerEnvironment
from ..connections import Address
from . import directory
from .messages import WORKER, Node
from .node_registry import worker_id

_SIOCGIFADDR = 0x8915  # linux/sockios.h: an interface's IPv4 address
_INTERFACE = struct.Struct("256s")  # struct ifreq, and more
_ADDRESS = slice(20, 24)  # in it


def wanted_rank(workers: int, environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the rank that the environment gives this worker; None where any will do.

    Raises:
        EnvironmentProblemError: there is no such rank, or a variable is wrong.
    """
    rank = WorkerEnvironment.read(environment).rank
    if rank is not None and rank >= workers:
        raise EnvironmentProblemError(
            f"{SLOT_VARIABLE} is {rank}, but should be a rank of 0 to {workers - 1}: DMLC_NUM_WORKER is {workers}"
        )
    return rank


@contextmanager
def asking(cluster: Cluster, rank: int, check: Callable[[], None]) -> Iterator[None]:
    """Ask for a rank; within the with statement this process has to register as a worker.

    Args:
        cluster: where the scheduler is.
        rank: the one that this worker wants.
        check: called while the scheduler does not answer; raises to give up.
    """
    before = {name: os.environ.get(name) for name in ("PORT", "DMLC_NODE_HOST")}
    with socket.socket() as held:
        if not before["PORT"]:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ps-lite, which sets it too, may bind it then
            held.bind(("", 0))
            os.environ["PORT"] = str(held.getsockname()[1])
        scheduler = cluster.address, cluster.port
        os.environ["DMLC_NODE_HOST"] = own_host(scheduler)
        me = Node(WORKER, os.environ["DMLC_NODE_HOST"], int(os.environ["PORT"]), worker_id(rank))
        try:
            directory.ask_for_rank(scheduler, me, check)
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


def own_host(scheduler: Address, environment: Mapping[str, str] = os.environ) -> str:
    """Return the address under which this process registers.

    It is DMLC_NODE_HOST or that of DMLC_INTERFACE, as in ps-lite; otherwise the one from which this
    machine reaches the scheduler.
    """
    if host := environment.get("DMLC_NODE_HOST"):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if interface := environment.get("DMLC_INTERFACE"):
            found = fcntl.ioctl(probe, _SIOCGIFADDR, _INTERFACE.pack(interface.encode()))
            return socket.inet_ntoa(found[_ADDRESS])
        probe.connect(scheduler)
        return str(probe.getsockname()[0])
