"""State that all workers of a modelled cluster share: servers, network, who has come and who waits."""

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
        """Tell whether it has come by `time`; called when a server has dealt with something."""
        ...


@dataclass(eq=False)
class ClusterState:
    """Servers, network and membership of a modelled cluster.

    Args:
        engine: whose time.
        network: between all hosts.
        nodes: the servers.
        slots: number of workers.
        model: sizes of the vectors of the model whose bytes go over the wire, where no values do.
        bucket_elements: the most values in one message.
        exchange: makes a worker's exchange from what it asks for and its store.

    Attributes:
        here: ranks that have come to begin.
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
        """At `time`, a server has handled a message of this rank: those whose payload has been used go on."""
        round_states = [node.round_state for node in self.nodes]
        # Asynchronous commits are dealt with one by one; the end of a round lets all of them go on,
        # and so does a slow worker that the others were too far ahead of.
        state = [
            (round_state.version if round_state.synchronous else -1, round_state.released, round_state.failure)
            for round_state in round_states
        ]
        ranks = [rank] if state == self._seen else list(self.waiting)
        self._seen = state
        for each in ranks:
            if each in self.waiting and self.waiting[each].look(time):
                del self.waiting[each]
