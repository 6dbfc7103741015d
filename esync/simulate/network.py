"""Network model: hosts with one full-duplex port each, shared fairly by simultaneous transfers."""

from collections.abc import Callable, Collection
from typing import Any

from .engine import SimulationEngine
from .ports import Link, NetworkTransfer, Port

__all__ = ["Link", "Network"]


class Network:
    """All ports, and the transfers through them.

    Every transfer has a parameter server at one of its ends. After the latency it competes with
    other transfers for the port. Transfers within a host cost nothing.

    Args:
        engine: the simulation's engine.
        link: returns a host's link.
        servers: hosts of parameter servers.
        scale: bytes that each byte to be carried stands for.

    Attributes:
        scale: the same.
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
        self.sent: dict[str, float] = {}
        self.received: dict[str, float] = {}

    def of(self, host: str) -> Link:
        """Return a host's link to the network."""
        link = self._links.get(host)
        if link is None:
            link = self._links[host] = self._link(host)
        return link

    def latency(self, source: str, target: str) -> float:
        """Return the seconds from one host to another, apart from waiting for bandwidth."""
        return 0.0 if source == target else self.of(source).latency + self.of(target).latency

    def carrying(self, source: str, target: str, size: float) -> float:
        """Return the seconds that a number of bytes take if nobody else uses the ports."""
        return (
            0.0 if source == target else self.scale * size / min(self.of(source).bandwidth, self.of(target).bandwidth)
        )

    def count(self, source: str, target: str, size: float) -> None:
        """Count bytes that go from one host to another."""
        size *= self.scale
        self.sent[source] = self.sent.get(source, 0.0) + size
        self.received[target] = self.received.get(target, 0.0) + size

    def send(
        self,
        source: str,
        target: str,
        size: float,
        arrived: Callable[[], Any],
        owner: object = None,
        at: float | None = None,
    ) -> None:
        """Carry `size` bytes from host to host.

        `arrived` is called, from an event, when the last byte has arrived.

        The transfer begins at `at`, or at the sender's present, which may be ahead of the events.
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

        What it has not sent yet is never sent, and what is in a port is lost.
        """
        now = self._engine.now
        for transfer in [each for each in self._under_way if each.owner is owner]:
            if transfer.flow is not None:
                transfer.edge.end(transfer)
                transfer.centre.plan()
            elif transfer.begun <= now:
                continue  # it is on its way, and cannot be called back
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
        # Many transfers share the server's port; the other end's bandwidth limits what this one can
        # use.
        transfer.centre, transfer.edge = reversed(ports) if target in self._servers else ports
        transfer.edge.begin(transfer)

    def _arrive(self, transfer: NetworkTransfer) -> None:
        if not transfer.dropped:
            self._under_way.pop(transfer, None)
            transfer.arrived()
