"""What a job stands on: addresses, ports and cores of its hosts, handed out to its processes one after the other."""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from .hosts import LOOPBACK, Host


class Ground:
    """The resources of one job.

    Args:
        hosts: by their names.
        ports: free ports of this machine, ascending.
        workers: the hosts of the workers.
        cores: of this machine; None leaves the number of threads as it is.
    """

    def __init__(
        self, hosts: Mapping[str, Host], ports: Iterable[int], workers: Sequence[str], cores: int | None
    ) -> None:
        self.hosts = hosts
        self._ports = iter(ports)
        self._one_machine = all(host.here for host in hosts.values())
        neighbours = sum(hosts[name].here for name in workers)
        # One core is left to the evaluation and the servers: threads that share a core wait for each other by spinning.
        self._share = max(1, (cores - 1) // max(1, neighbours)) if cores else None

    @property
    def listen_address(self) -> str:
        """Where a service listens: to this machine only, where nobody else needs it."""
        return LOOPBACK if self._one_machine else "0.0.0.0"

    def address(self, host: str) -> str:
        """Under which the job's processes reach a host."""
        return LOOPBACK if self._one_machine else self.hosts[host].address

    def interface(self, host: str) -> dict[str, str]:
        """Which of the host's addresses ps-lite is to use: it may guess wrong where there are several."""
        address = self.address(host)
        try:
            ipaddress.ip_address(address)
        except ValueError:
            return {}
        return {"DMLC_NODE_HOST": address}

    def free_port(self) -> int:
        """A free port of this machine."""
        return next(self._ports)

    def port_variable(self, host: str) -> dict[str, str]:
        """ps-lite ranks the processes of one address by their ports: ascending ones keep the description's order."""
        return {"PORT": str(self.free_port())} if self.hosts[host].here else {}

    def threads(self, host: str, number: int | None = None) -> dict[str, str]:
        """That many threads for computing, or a fair share of this machine's cores."""
        number = number or (self._share if self.hosts[host].here else None)
        return {"OMP_NUM_THREADS": str(number)} if number else {}
