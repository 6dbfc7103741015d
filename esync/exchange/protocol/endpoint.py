"""The server's end of the protocol: commands and pushes, in the order in which they arrive."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from ..codecs.choice import packings_of
from ..codecs.quantization import NONE
from .handshake import Greeting, Resumed
from .parameter_server import ParameterServer
from .payload_staging import Memory
from .round_state import RoundState

log = logging.getLogger(__name__)

#: The server that decides when the run ends: the one that holds key 0.
FIRST = 0


class MembershipMonitor(Protocol):
    """Finds out which workers are gone, and has the server drop them or end the run."""

    def joined(self, rank: int, address: str, replacement: float) -> None:
        """Watch a worker, which has just sent its greeting.

        Args:
            rank: its slot.
            address: where it listens.
            replacement: seconds that the others wait for a replacement, should it be gone.
        """

    def look(self) -> None:
        """Find out who is gone; called after every push."""


class Endpoint:
    """The first greeting sets the parameter server up; every later one is compared with it.

    Args:
        shard: number of this server.
        clock: seconds, monotonic.
        memory: where payloads are staged and added up; None: host memory.
        membership: given the server and a lease in seconds, makes what looks after its workers;
            None: nobody does.
    """

    def __init__(
        self,
        shard: int,
        clock: Callable[[], float],
        memory: Memory | None = None,
        membership: Callable[[ParameterServer, float], MembershipMonitor] | None = None,
    ) -> None:
        self._shard, self._clock, self._memory = shard, clock, memory
        self._make_membership = membership
        self._greeted: Greeting | None = None
        self._server: ParameterServer | None = None
        self._membership: MembershipMonitor | None = None
        self._notices: dict[int, str] = {}

    @property
    def server(self) -> ParameterServer:
        """The parameter server; there is one as soon as a worker has greeted."""
        if self._server is None:
            raise RuntimeError("nobody has greeted this server yet")
        return self._server

    def command(self, command: Greeting | Resumed) -> None:
        """Take a command: a worker introduces itself, or has gone back to a checkpoint."""
        if isinstance(command, Greeting):
            self._greet(command)
        elif self._server is not None:
            self._server.resume(command.rank, command.nonce, command.exchanges, command.books)

    def push(self, key: int, received: np.ndarray, stored: np.ndarray) -> None:
        """An array has arrived for a key whose values are kept in `stored`; see `ParameterServer.push`."""
        self.server.push(key, received, stored)
        if self._membership is not None:
            self._membership.look()

    def _greet(self, greeting: Greeting) -> None:
        if self._server is None or self._greeted is None:
            self._server = serve(greeting, self._shard, self._clock, self._memory)
            self._greeted = greeting
            if self._make_membership is not None:
                self._membership = self._make_membership(self._server, greeting.lease)
        self._server.join(greeting.rank, greeting.nonce, greeting.offers)
        if self._membership is not None:
            self._membership.joined(greeting.rank, greeting.address, greeting.replacement)
        first, round_state = self._greeted, self._server.round_state
        if differences := first.differences(greeting):
            round_state.abort(f"worker {greeting.rank} does not match worker {first.rank}: {'; '.join(differences)}")
        self._notices[greeting.rank] = notice = first.notice(greeting)
        if notice:
            log.warning("%s", notice)
        round_state.notice = next(filter(None, self._notices.values()), "")  # there is room for one
        log.debug("worker %d of %d is here", greeting.rank, greeting.slots)


def serve(greeting: Greeting, shard: int, clock: Callable[[], float], memory: Memory | None = None) -> ParameterServer:
    """Make the parameter server that the first worker's greeting asks for.

    Args:
        greeting: of the first worker.
        shard: number of this server.
        clock: seconds, monotonic.
        memory: where it works; None: host memory. Sparse and packed messages are always worked on
            in host memory.
    """
    # Time passes differently on every server: only the first one, which decides when the run ends,
    # looks at it.
    limits = greeting.limits if shard == FIRST else replace(greeting.limits, seconds=math.inf)
    asked = greeting.specification
    round_state = RoundState(
        greeting.slots,
        asked.synchronous,
        limits,
        staleness=asked.staleness,
        decides=shard == FIRST,
        added=asked.scalars,
    )
    layout = greeting.layout()
    up, down = packings_of(asked, layout, greeting.slots)
    if not up.name == down.name == NONE:
        memory = None
    uplink, downlink = up.uplink(shard), down.downlink(shard)
    return ParameterServer(layout, round_state, uplink, downlink, asked.rules(), clock, memory, asked.weighting)
