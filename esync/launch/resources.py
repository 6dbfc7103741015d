"""Addresses, ports and cores of the hosts, assigned to the processes of a job.

Ports are reserved from the moment they are chosen, so that two jobs that start at the same time on
one machine never choose the same one. The kernel does not assign the port of a socket that is bound
but does not listen, while a server that sets SO_REUSEADDR, as ZeroMQ does, can still bind it (Linux).
"""

import errno
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from ..runtime.closing import Closing
from ..runtime.errors import ExpectedError
from .hosts import LOOPBACK, Host


class PortInUseError(ExpectedError):
    """Raised when a port that the description gives cannot be used."""


class Ports(Closing):
    """Ports of this machine that stay reserved until this object is closed."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def free(self, number: int) -> list[int]:
        """Reserve `number` free ports, and return them in ascending order."""
        return sorted(self._hold(0) for _ in range(number))

    def claim(self, port: int, owner: str) -> None:
        """Reserve a given port; `owner` is its name in the error message.

        Raises:
            PortInUseError: another process uses it, or this user lacks the permission.
        """
        try:
            self._hold(port)
        except OSError as error:
            reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
            raise PortInUseError(
                f"{owner} {port}: {reason}; choose another one, or leave the port out and launch chooses it"
            ) from None

    def _hold(self, port: int) -> int:
        holder = socket.socket()
        self._sockets.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((LOOPBACK, port))
        return int(holder.getsockname()[1])

    @override
    def close(self) -> None:
        for holder in self._sockets:
            holder.close()


@dataclass(frozen=True)
class HostResources:
    """Free ports and cores of one host.

    Attributes:
        ports: free ports in ascending order.
        cores: number of cores to share among the workers; None leaves the number of threads open.
    """

    ports: Iterable[int] = ()
    cores: int | None = None


class JobResources:
    """The resources of all hosts of one job.

    Args:
        hosts: by their names.
        local: resources of this machine, shared by all hosts that stand for it.
        remote: resources of the other hosts, by their names. Hosts that have not been asked are
            missing.
        workers: host of each worker.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        local: HostResources,
        remote: Mapping[str, HostResources],
        workers: Sequence[str],
    ) -> None:
        self.hosts = hosts
        local_ports = iter(local.ports)
        remote = {name: remote.get(name, HostResources()) for name in hosts}
        self._ports = {name: local_ports if host.local else iter(remote[name].ports) for name, host in hosts.items()}
        self._one_machine = all(host.local for host in hosts.values())
        neighbours = Counter(self._machine(name) for name in workers)
        self._shares: dict[str, int] = {}
        for name, host in hosts.items():
            cores = local.cores if host.local else remote[name].cores
            if cores:
                # One core is left to the evaluation and the servers, because OpenMP's threads spin
                # while they wait for a thread whose core is shared.
                self._shares[name] = max(1, (cores - 1) // max(1, neighbours[self._machine(name)]))

    @property
    def listen_address(self) -> str:
        """The address at which services listen: loopback if all hosts are this machine."""
        return LOOPBACK if self._one_machine else "0.0.0.0"

    def address(self, host: str) -> str:
        """Return the address at which the job's processes reach a host."""
        return LOOPBACK if self._one_machine else self.hosts[host].ip or self.hosts[host].address

    def interface(self, host: str) -> dict[str, str]:
        """Return the variables that tell ps-lite which of the host's addresses to use.

        ps-lite may choose a wrong one if there are several.
        """
        if not self._one_machine and (not self.hosts[host].ip or "DMLC_INTERFACE" in self.hosts[host].entry.env):
            return {}
        return {"DMLC_NODE_HOST": self.address(host)}

    def free_port(self, host: str) -> int | None:
        """Return the next free port of a host, or None if the host has not been asked."""
        return next(self._ports[host], None)

    def port_variable(self, host: str) -> dict[str, str]:
        """Return the variable that assigns a port to a process of ps-lite.

        ps-lite ranks the processes of one address by their ports, so ascending ports keep the order
        of the description.
        """
        port = self.free_port(host)
        return {"PORT": str(port)} if port else {}

    def threads(self, host: str, number: int | None = None) -> dict[str, str]:
        """Return the variable for the number of threads: `number`, or an equal share of the cores."""
        number = number or self._shares.get(host)
        return {"OMP_NUM_THREADS": str(number)} if number else {}

    def _machine(self, host: str) -> str:
        return "" if self.hosts[host].local else self.hosts[host].address
