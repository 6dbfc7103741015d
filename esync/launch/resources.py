"""What a job stands on: addresses, ports and cores of its hosts, handed out to its processes one after the other."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .hosts import LOOPBACK, Host


@dataclass(frozen=True)
class Supplies:
    """What a machine has for a job.

    Attributes:
        ports: free ones, ascending.
        cores: None leaves the number of threads as it is.
    """

    ports: Iterable[int] = ()
    cores: int | None = None


class Ground:
    """The resources of one job.

    Args:
        hosts: by their names.
        here: of this machine, for all hosts that stand for it.
        there: of the others, by their names; a host that nobody has asked yet is missing.
        workers: the hosts of the workers.
    """

    def __init__(
        self, hosts: Mapping[str, Host], here: Supplies, there: Mapping[str, Supplies], workers: Sequence[str]
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
                # One core is left to the evaluation and the servers: threads that share one wait by spinning.
                self._shares[name] = max(1, (cores - 1) // max(1, neighbours[self._machine(name)]))

    @property
    def listen_address(self) -> str:
        """Where a service listens: to this machine only, where nobody else needs it."""
        return LOOPBACK if self._one_machine else "0.0.0.0"

    def address(self, host: str) -> str:
        """Under which the job's processes reach a host."""
        return LOOPBACK if self._one_machine else self.hosts[host].ip or self.hosts[host].address

    def interface(self, host: str) -> dict[str, str]:
        """Which of the host's addresses ps-lite is to use: it may guess wrong where there are several."""
        if not self._one_machine and (not self.hosts[host].ip or "DMLC_INTERFACE" in self.hosts[host].entry.env):
            return {}
        return {"DMLC_NODE_HOST": self.address(host)}

    def free_port(self, host: str) -> int | None:
        """A free port of a host; None where nobody has asked it yet."""
        return next(self._ports[host], None)

    def port_variable(self, host: str) -> dict[str, str]:
        """ps-lite ranks the processes of one address by their ports: ascending ones keep the description's order."""
        port = self.free_port(host)
        return {"PORT": str(port)} if port else {}

    def threads(self, host: str, number: int | None = None) -> dict[str, str]:
        """That many threads for computing, or a fair share of the host's cores."""
        number = number or self._shares.get(host)
        return {"OMP_NUM_THREADS": str(number)} if number else {}

    def _machine(self, host: str) -> str:
        return "" if self.hosts[host].here else self.hosts[host].address


def _of(there: Mapping[str, Supplies], name: str) -> Supplies:
    return there.get(name, Supplies())
