"""Addresses, ports and cores of the hosts, assigned to the processes of a job.

Ports are held from the moment they are chosen, so two jobs that start at the same time on one
machine never choose the same one. A socket that is bound but does not listen keeps the kernel from
giving the port away, while a server that sets SO_REUSEADDR, as ZeroMQ and uvicorn do, can still
bind it (Linux).
"""

import errno
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from ..runtime.errors import ExpectedError
from .hosts import LOOPBACK, Host


class PortInUseError(ExpectedError):
    """Somebody listens on a port that the description names."""


class Ports:
    """Ports of this machine that are held until this is closed."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def free(self, number: int) -> list[int]:
        """Return that many free ports, ascending."""
        return sorted(self._hold(0) for _ in range(number))

    def claim(self, port: int, owner: str) -> None:
        """Hold a given port.

        Raises:
            PortInUseError: somebody else has it, or this user may not use it.
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

    def __enter__(self) -> "Ports":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for holder in self._sockets:
            holder.close()


@dataclass(frozen=True)
class HostResources:
    """Free ports and cores of a host.

    Attributes:
        ports: free ones, ascending.
        cores: None leaves the number of threads as it is.
    """

    ports: Iterable[int] = ()
    cores: int | None = None


class JobResources:
    """Resources of one job.

    Args:
        hosts: by their names.
        here: of this machine, for all hosts that stand for it.
        there: of the others, by their names; a host that nobody has asked yet is missing.
        workers: the hosts of the workers.
    """

    def __init__(
        self, hosts: Mapping[str, Host], here: HostResources, there: Mapping[str, HostResources], workers: Sequence[str]
    ) -> None:
        self.hosts = hosts
        mine = iter(here.ports)
        self._ports = {name: mine if host.here else iter(_of(there, name).ports) for name, host in hosts.items()}
        self._one_machine = all(host.here for host in hosts.values())
        neighbours = Counter(self._machine(name) for name in workers)
        self._shares: dict[str, int] = {}
        for name, host in hosts.items():
            cores = here.cores if host.here else _of(there, name).cores
            if cores:
                # One core is left to the evaluation and the servers: threads that share one wait by
                # spinning.
                self._shares[name] = max(1, (cores - 1) // max(1, neighbours[self._machine(name)]))

    @property
    def listen_address(self) -> str:
        """Where a service listens: to this machine only, where nobody else needs it."""
        return LOOPBACK if self._one_machine else "0.0.0.0"

    def address(self, host: str) -> str:
        """Under which the job's processes reach a host."""
        return LOOPBACK if self._one_machine else self.hosts[host].ip or self.hosts[host].address

    def interface(self, host: str) -> dict[str, str]:
        """Return which of the host's addresses ps-lite is to use: it may guess wrong where there are several."""
        if not self._one_machine and (not self.hosts[host].ip or "DMLC_INTERFACE" in self.hosts[host].entry.env):
            return {}
        return {"DMLC_NODE_HOST": self.address(host)}

    def free_port(self, host: str) -> int | None:
        """Return a free port of a host; None where nobody has asked it yet."""
        return next(self._ports[host], None)

    def port_variable(self, host: str) -> dict[str, str]:
        """ps-lite ranks the processes of one address by their ports: ascending ones keep the description's order."""
        port = self.free_port(host)
        return {"PORT": str(port)} if port else {}

    def threads(self, host: str, number: int | None = None) -> dict[str, str]:
        """Return that many threads for computing, or a fair share of the host's cores."""
        number = number or self._shares.get(host)
        return {"OMP_NUM_THREADS": str(number)} if number else {}

    def _machine(self, host: str) -> str:
        return "" if self.hosts[host].here else self.hosts[host].address


def _of(there: Mapping[str, HostResources], name: str) -> HostResources:
    return there.get(name, HostResources())
