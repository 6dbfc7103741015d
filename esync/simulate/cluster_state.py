"""State that all workers of a modelled cluster share: servers, network, and who is there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from .. import config
from ..exchange import Specification
from ..exchange.protocol.client import ParameterServerExchange
from ..exchange.protocol.store import Store
from .engine import SimulationEngine
from .network import Network
from .servers import ServerNode, message_bytes


class Waiting(Protocol):
    """An event that a worker waits for."""

    def look(self, time: float) -> bool:
        """Return whether the event has come by `time`.

        Called when a server has handled a message.
        """
        ...


@dataclass(eq=False)
class ClusterState:
    """Servers, network and membership of a modelled cluster.

    Args:
        engine: the simulation's engine.
        network: the network between all hosts.
        nodes: the servers.
        slots: number of workers.
        model: sizes of the vectors whose bytes are modelled, where no values go over the wire; None
            where values do.
        bucket_elements: largest number of values in one message.
        exchange: makes a worker's exchange from its specification and its store.

    Attributes:
        here: ranks that are ready to begin.
        shared: keys that all workers share.
        waiting: rank → the exchange that it waits for.
    """

    engine: SimulationEngine
    network: Network
    nodes: list[ServerNode]
    slots: int
    model: Mapping[str, int] | None = None
    bucket_elements: int = config.BUCKET_ELEMENTS
    here: set[int] = field(default_factory=set)
    shared: set[int] = field(default_factory=set)
    nonces: int = 0
    exchange: Callable[[Specification, Store], ParameterServerExchange] = ParameterServerExchange

    def __post_init__(self) -> None:
        self.everyone = tuple(range(self.slots))
        self.everyone_here = self.engine.event()
        self.waiting: dict[int, Waiting] = {}
        self.message_bytes = message_bytes(self.slots)
        self._seen: list[tuple[int, int, str]] = []

    def changed(self, rank: int, time: float) -> None:
        """Wake the workers whose payloads have been used.

        Called when a server has handled a message of this rank, at `time`.
        """
        round_states = [node.round_state for node in self.nodes]
        # Asynchronous commits are handled one by one. The end of a round lets all workers go on,
        # and so does a commit of a slow worker that the others were too far ahead of.
        state = [
            (round_state.version if round_state.synchronous else -1, round_state.released, round_state.failure)
            for round_state in round_states
        ]
        ranks = [rank] if state == self._seen else list(self.waiting)
        self._seen = state
        for each in ranks:
            if each in self.waiting and self.waiting[each].look(time):
                del self.waiting[each]
