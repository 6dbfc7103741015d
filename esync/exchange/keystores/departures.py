"""With --elastic: which workers the rounds are no longer to wait for.

A worker is gone when its connection has ended, and nobody waits for it longer; or when it is silent for a lease while
others wait for it (its process hangs, or its machine does). Looking is only done when a message has come, on the thread
that handles messages: workers that wait send heartbeats, and where nobody waits, nobody need be left out.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from ... import config
from ...sockets import connections, keep_alive, numbers
from ..protocol.ledger import Ledger

log = logging.getLogger(__name__)

#: Seconds between two looks.
LOOK_EVERY = 0.25

Address = tuple[str, int]


class Server(Protocol):
    """What `parameter_server.ParameterServer` has to offer for this."""

    ledger: Ledger
    heard: dict[int, float]

    def drop(self, rank: int) -> None:
        """The others go on without a worker."""


def connected() -> set[Address]:
    """To whom this process is connected, after a look at the connections' health."""
    keep_alive(*config.KEEP_ALIVE)
    return {connection.there for connection in connections() if connection.established}


class Departures:
    """Finds out who is gone, and has the server drop them.

    Args:
        server: the parameter server.
        lease: seconds.
        clock: seconds, monotonic; the one of the server.
        connected: the addresses of those whose connections stand.
    """

    def __init__(
        self,
        server: Server,
        lease: float,
        clock: Callable[[], float],
        connected: Callable[[], set[Address]] = connected,
    ) -> None:
        self._server, self._lease, self._clock, self._connected = server, lease, clock, connected
        self._addresses: dict[int, set[Address]] = {}
        self._seen: dict[int, float] = {}
        self._looked = clock()

    def arrived(self, rank: int, address: str) -> None:
        """A worker has greeted; it listens at `address` (host:port, or "" where it does not know)."""
        host, _, port = address.rpartition(":")
        self._seen.pop(rank, None)
        self._addresses.pop(rank, None)
        if port:
            self._addresses[rank] = {(number, int(port)) for number in numbers(host)}

    def look(self) -> None:
        """Drop who is gone; does nothing if the last look is not long ago."""
        now = self._clock()
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        connected = self._connected()
        ledger = self._server.ledger
        for rank, addresses in self._addresses.items():
            if addresses & connected:
                self._seen[rank] = now
        for rank in range(ledger.slots):
            if not ledger.member[rank]:
                continue
            if now - self._seen.get(rank, now) > config.CONNECTION_GONE:
                self._drop(rank, "its connection has ended")
            elif self._held_up_by(rank) and now - self._server.heard.get(rank, now) > self._lease:
                self._drop(rank, f"it has not been heard for {self._lease:g} s")

    def _held_up_by(self, rank: int) -> bool:
        """Whether others wait for this worker."""
        ledger = self._server.ledger
        waited_for = ledger.synchronous and bool(ledger.counted[rank])
        return waited_for and bool(ledger.pending) and rank not in ledger.pending

    def _drop(self, rank: int, reason: str) -> None:
        log.warning("worker %d is left out from now on: %s", rank, reason)
        self._server.drop(rank)
