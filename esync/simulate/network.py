"""Network model: hosts with one full-duplex port each, shared fairly by simultaneous transfers."""

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

from .engine import SimulationEngine
from .ports import Link, NetworkTransfer, Port

__all__ = ["Link", "Network"]


class Network:
    """All ports, and the transfers through them.

    Every transfer begins or ends at a parameter server. After the latency it competes with other
    transfers for the port. Transfers within a host take no time.

    Args:
        engine: the simulation's engine.
        link: returns a host's link.
        servers: hosts of parameter servers.
        scale: factor by which modelled transfers are larger than the given ones.

    Attributes:
        scale: the same factor.
        sent: host → bytes that have left it.
        received: host → bytes that have reached it.
    """

    def __init__(
        self,
        engine: SimulationEngine,
        link: Callable[[str], Link],
        servers: Collection[str],
        scale: float = 1.0,
    ) -> None:
        self._engine = engine
        self._link = link
        self._servers = frozenset(servers)
        self.scale = scale
        self._links: dict[str, Link] = {}
        self._ports: dict[tuple[bool, str], Port] = {}
        self._under_way: dict[NetworkTransfer, None] = {}  # ordered
        self.sent: dict[str, float] = defaultdict(float)
        self.received: dict[str, float] = defaultdict(float)

    def of(self, host: str) -> Link:
        """Return a host's link to the network."""
        link = self._links.get(host)
        if link is None:
            link = self._links[host] = self._link(host)
        return link

    def latency(self, source: str, target: str) -> float:
        """Return the latency from one host to another in seconds."""
        return 0.0 if source == target else self.of(source).latency + self.of(target).latency

    def carrying(self, source: str, target: str, size: float) -> float:
        """Return the seconds that `size` bytes take if no other transfer uses the ports."""
        return (
            0.0 if source == target else self.scale * size / min(self.of(source).bandwidth, self.of(target).bandwidth)
        )

    def count(self, source: str, target: str, size: float) -> None:
        """Count bytes sent from one host to another."""
        self.sent[source] += self.scale * size
        self.received[target] += self.scale * size

    def send(
        self,
        source: str,
        target: str,
        size: float,
        arrived: Callable[[], Any],
        owner: object = None,
        at: float | None = None,
    ) -> None:
        """Send `size` bytes from host to host, at `at` or the current time of the sender's clock.

        `arrived` is called, from an event, when the last byte has arrived.
        """
        self.count(source, target, size)
        engine = self._engine
        begun = engine.now if at is None else at
        transfer = NetworkTransfer(self.scale * size, arrived, owner, begun)
        self._under_way[transfer] = None
        at = begun + self.latency(source, target)
        if source == target or self.of(source).bandwidth == self.of(target).bandwidth == float("inf"):
            engine.call_at(at, self._arrive, transfer)
        else:
            engine.call_at(at, self._enter, transfer, source, target)

    def drop(self, owner: object) -> None:
        """Drop the transfers of a worker that has crashed.

        Scheduled transfers do not begin, and those in a port are lost.
        """
        now = self._engine.now
        for transfer in [moving for moving in self._under_way if moving.owner is owner]:
            if transfer.flow is not None:
                transfer.edge.end(transfer)
                transfer.centre.plan()
            elif transfer.begun <= now:
                continue  # it has passed the ports already
            transfer.dropped = True
            del self._under_way[transfer]

    # --- helpers ----------------------------------------------------------------------------------

    def _port(self, inward: bool, host: str) -> Port:
        port = self._ports.get((inward, host))
        if port is None:
            port = self._ports[inward, host] = Port(self._engine, self.of(host).bandwidth, self._arrive)
        return port

    def _enter(self, transfer: NetworkTransfer, source: str, target: str) -> None:
        if transfer.dropped:
            return
        ports = self._port(False, source), self._port(True, target)
        # Many transfers share the server's port; the other port only limits this one's rate.
        transfer.centre, transfer.edge = reversed(ports) if target in self._servers else ports
        transfer.edge.begin(transfer)

    def _arrive(self, transfer: NetworkTransfer) -> None:
        if not transfer.dropped:
            self._under_way.pop(transfer, None)
            transfer.arrived()
