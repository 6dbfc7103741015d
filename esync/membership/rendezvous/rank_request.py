"""A worker's request for a rank, which it sends before ps-lite registers it.

ps-lite's registration has no field for it. The worker therefore sends the scheduler a separate message
with the address at which it will listen and the requested rank.
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


def requested_rank(workers: int, environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the rank of this worker in the environment; None if it is not set.

    Raises:
        EnvironmentProblemError: the rank or another variable is invalid.
    """
    rank = WorkerEnvironment.read(environment).rank
    if rank is not None and rank >= workers:
        raise EnvironmentProblemError(
            f"{SLOT_VARIABLE} is {rank}, but should be a rank of 0 to {workers - 1}: DMLC_NUM_WORKER is {workers}"
        )
    return rank


@contextmanager
def asking(cluster: Cluster, rank: int, check: Callable[[], None]) -> Iterator[None]:
    """Request a rank; within the `with` statement this process must register as a worker, which listens at PORT.

    Args:
        cluster: the cluster, with the address of the scheduler.
        rank: the requested rank.
        check: called while the scheduler does not answer; raises an exception to give up.
    """
    before = os.environ.get("DMLC_NODE_HOST")
    scheduler = cluster.address, cluster.port
    os.environ["DMLC_NODE_HOST"] = local_address(scheduler)
    me = Node(WORKER, os.environ["DMLC_NODE_HOST"], int(os.environ["PORT"]), worker_id(rank))
    try:
        directory.ask_for_rank(scheduler, me, check)
        yield
    finally:
        del os.environ["DMLC_NODE_HOST"]
        if before is not None:
            os.environ["DMLC_NODE_HOST"] = before


def local_address(scheduler: Address) -> str:
    """Return the address with which this process registers.

    It is DMLC_NODE_HOST or the address of DMLC_INTERFACE, as in ps-lite; otherwise the local address of
    connections to the scheduler.
    """
    if host := os.environ.get("DMLC_NODE_HOST"):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if interface := os.environ.get("DMLC_INTERFACE"):
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, _INTERFACE.pack(interface.encode()))
            return socket.inet_ntoa(answer[_ADDRESS])
        probe.connect(scheduler)
        return str(probe.getsockname()[0])
