"""The modelled network: hosts with one full-duplex port each, whose bandwidth simultaneous transfers share fairly.

Shares are max-min fair, which is what TCP connections of equal round trip come close to: the port with the least for
each of its transfers is divided equally among them, what they do not use elsewhere goes to the others, and so on.
Ways within a host cost nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import simpy

from .engine import Engine

#: Bytes that rounding may leave over.
_NOTHING = 1e-3


@dataclass(frozen=True)
class Link:
    """A host's way into the network.

    Attributes:
        bandwidth: bytes per second that its port carries, in each direction.
        latency: seconds from this host to the middle of the network.
    """

    bandwidth: float = math.inf
    latency: float = 0.0


@dataclass(eq=False)
class Transfer:
    """Bytes on their way.

    Attributes:
        source: host.
        target: host.
        left: bytes still to be carried, as of the last change of rates.
        rate: bytes per second.
        arrived: called when the last byte is there.
        owner: of whom they are: a crash ends them.
    """

    source: str
    target: str
    left: float
    arrived: Callable[[], Any]
    owner: object = None
    rate: float = 0.0


class Network:
    """All ports and the transfers that go through them.

    Args:
        engine: whose time.
        link: host → its link.
        delay: drawn for every transfer, seconds that it takes besides; None: none.

    Attributes:
        sent: host → bytes that have left it.
        received: host → bytes that have reached it.
    """

    def __init__(self, engine: Engine, link: Callable[[str], Link], delay: Callable[[], float] | None = None) -> None:
        self._engine = engine
        self._link = link
        self._delay = delay or (lambda: 0.0)
        self._links: dict[str, Link] = {}
        self._active: dict[Transfer, None] = {}  # ordered
        self._changed = 0.0  # when the rates were last worked out
        self._due: simpy.Event | None = None  # the next end of a transfer
        self._planned = False
        self.sent: dict[str, float] = {}
        self.received: dict[str, float] = {}

    def latency(self, source: str, target: str) -> float:
        """Seconds from one host to another, without waiting for bandwidth."""
        return 0.0 if source == target else self._of(source).latency + self._of(target).latency

    def send(self, source: str, target: str, size: float, arrived: Callable[[], Any], owner: object = None) -> None:
        """Carry `size` bytes from host to host; `arrived` is called (from an event) when the last one is there."""
        self.sent[source] = self.sent.get(source, 0.0) + size
        self.received[target] = self.received.get(target, 0.0) + size
        if source == target or (self._of(source).bandwidth == self._of(target).bandwidth == math.inf):
            self._engine.call_at(self._engine.now + self.latency(source, target) + self._delay(), arrived)
            return
        self._active[Transfer(source, target, max(size, 2 * _NOTHING), arrived, owner)] = None
        self._plan()

    def drop(self, owner: object) -> None:
        """Whatever is on its way from or to a crashed worker is lost."""
        for transfer in [each for each in self._active if each.owner is owner]:
            del self._active[transfer]
        self._plan()

    # --- helpers --------------------------------------------------------------------------------------------------

    def _of(self, host: str) -> Link:
        if host not in self._links:
            self._links[host] = self._link(host)
        return self._links[host]

    def _plan(self) -> None:
        """Have the rates worked out once everything that happens at this moment has happened."""
        if not self._planned:
            self._planned = True
            self._engine.call_at(self._engine.now, self._update)

    def _update(self) -> None:
        """Carry on at the rates so far, let those arrive that are done, and work out the rates of the others."""
        self._planned = False
        now = self._engine.now
        passed, self._changed = now - self._changed, now
        for transfer in list(self._active):
            transfer.left -= transfer.rate * passed
            if transfer.left <= _NOTHING or transfer.left <= transfer.rate * 1e-9:
                del self._active[transfer]
                delay = self.latency(transfer.source, transfer.target) + self._delay()
                self._engine.call_at(now + delay, self._arrive, transfer)
        share(list(self._active), lambda host: self._of(host).bandwidth)
        self._due = None
        if self._active:
            soonest = min(transfer.left / transfer.rate for transfer in self._active)
            self._due = self._engine.timer(now + soonest)
            assert self._due.callbacks is not None
            self._due.callbacks.append(self._on_due)

    def _on_due(self, event: simpy.Event) -> None:
        if event is self._due:  # else the rates have changed since
            self._update()

    def _arrive(self, transfer: Transfer) -> None:
        transfer.arrived()


def share(transfers: list[Transfer], bandwidth: Callable[[str], float]) -> None:
    """Give every transfer its max-min fair rate (progressive filling)."""
    through: dict[tuple[bool, str], list[Transfer]] = {}
    for transfer in transfers:
        transfer.rate = -1.0
        through.setdefault((False, transfer.source), []).append(transfer)
        through.setdefault((True, transfer.target), []).append(transfer)
    room = {port: bandwidth(port[1]) for port in through}
    left = {port: len(members) for port, members in through.items()}
    while left:
        tightest = min(left, key=lambda port: room[port] / left[port])
        rate = room[tightest] / left[tightest]
        for transfer in through[tightest]:
            if transfer.rate >= 0:
                continue
            transfer.rate = rate
            for port in ((False, transfer.source), (True, transfer.target)):
                room[port] -= rate
                left[port] -= 1
                if not left[port]:
                    del left[port]
