"""With --elastic: which workers the rounds are no longer to wait for.

A worker is gone when its connection has ended, and nobody waits for it longer; or when it is silent for a lease while
others wait for it (its process hangs, or its machine does). Looking is only done when a message has come, on the thread
that handles messages: workers that wait send heartbeats, and where nobody waits, nobody need be left out.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from .. import config
from ..exchange.protocol.ledger import Ledger
from .failure_detector import FailureDetector
from .peers import Peers

log = logging.getLogger(__name__)

#: Seconds between two looks.
LOOK_EVERY = 0.25


class Server(Protocol):
    """What `parameter_server.ParameterServer` has to offer for this."""

    ledger: Ledger
    heard: dict[int, float]

    def drop(self, rank: int) -> None:
        """Let the others go on without a worker."""


class Membership:
    """Finds out which workers are gone, and has the server drop them. For one thread.

    Args:
        server: the parameter server.
        lease: seconds that a worker may be silent while others wait for it.
        clock: seconds, monotonic; the one of the server.
        peers: tells which ranks are connected; None: as the kernel says.
    """

    def __init__(
        self, server: Server, lease: float, clock: Callable[[], float], peers: Peers[int] | None = None
    ) -> None:
        self._server, self._lease, self._clock = server, lease, clock
        self._peers: Peers[int] = Peers() if peers is None else peers
        self._detector: FailureDetector[int] = FailureDetector(config.CONNECTION_GONE)
        self._looked = clock()

    def joined(self, rank: int, address: str) -> None:
        """Take a worker that has greeted; it listens at `address` (host:port, or "" where it does not know)."""
        self._detector.forget(rank)
        self._peers.discard(rank)
        host, _, port = address.rpartition(":")
        if port:
            self._peers.add(rank, host, int(port))

    def look(self) -> None:
        """Drop the workers that are gone; does nothing if the last look is not long ago."""
        now = self._clock()
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        gone = set(self._detector.look(self._peers.connected(), now))
        ledger = self._server.ledger
        for rank in range(ledger.slots):
            if not ledger.member[rank]:
                continue
            if rank in gone:
                self._drop(rank, "its connection has ended")
            elif ledger.waits_for(rank) and now - self._server.heard.get(rank, now) > self._lease:
                self._drop(rank, f"it has not been heard for {self._lease:g} s")

    def _drop(self, rank: int, reason: str) -> None:
        log.warning("worker %d is left out from now on: %s", rank, reason)
        self._server.drop(rank)
