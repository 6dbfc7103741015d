"""State that all workers of a modelled cluster share: servers, network and membership."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from .. import config
from ..exchange.host_group import HostGroup
from .engine import SimulationEngine
from .host_group import VirtualHost, VirtualHostGroup
from .network import Network
from .servers import ServerNode, message_bytes


class Waiting(Protocol):
    """An event that a worker waits for."""

    def check(self, time: float) -> bool:
        """Return whether the event has happened by `time`.

        Called when a server has handled a message.
        """
        ...

    def poke(self) -> None:
        """Let the worker check the servers' statuses, although the event may not have happened."""
        ...


@dataclass(eq=False)
class ClusterState:
    """Servers, network and membership of a modelled cluster.

    Args:
        engine: the simulation's engine.
        network: the network between all hosts.
        nodes: the servers.
        slots: number of workers.
        model: sizes of the modelled vectors if messages carry no values; None if they do.
        bucket_elements: largest number of values in one message.
        memory_bandwidth: see `ClusterModel`.

    Attributes:
        ready: ranks that are ready to begin.
        shared: keys that all workers share.
        waiting: rank → the exchange that it waits for.
        hosts: rank → the memory that it shares with the workers of its host; empty if each worker
            exchanges by itself.
        per_host: the largest number of workers on a host that exchange as one.
    """

    engine: SimulationEngine
    network: Network
    nodes: list[ServerNode]
    slots: int
    model: Mapping[str, int] | None = None
    bucket_elements: int = config.BUCKET_ELEMENTS
    ready: set[int] = field(default_factory=set)
    shared: set[int] = field(default_factory=set)
    nonces: int = 0
    memory_bandwidth: float = math.inf

    def __post_init__(self) -> None:
        self.everyone = tuple(range(self.slots))
        self.everyone_ready = self.engine.event()
        self.waiting: dict[int, Waiting] = {}
        self.hosts: dict[int, VirtualHost] = {}
        self.per_host = 1
        self.message_bytes = message_bytes(self.slots)
        self._seen: list[tuple[int, int, str]] = []

    def share_hosts(self, hosts: Iterable[Sequence[int]]) -> None:
        """Let the workers of each host exchange as one.

        Args:
            hosts: the ranks on each host.
        """
        hosts = list(hosts)
        self.per_host = max_size = max(map(len, hosts))
        for ranks in hosts:
            shared = VirtualHost(self.engine, tuple(sorted(ranks)), max_size, partial(self.poke, ranks))
            self.hosts |= dict.fromkeys(ranks, shared)

    def host_group(self, rank: int, process: int) -> HostGroup | None:
        """Return a worker's part of its host's group; None if it exchanges by itself."""
        if rank not in self.hosts:
            return None
        return VirtualHostGroup(
            self.engine, self.hosts[rank], rank, process, 4 * self.network.scale / self.memory_bandwidth
        )

    def poke(self, ranks: Iterable[int] | None = None) -> None:
        """Let waiting workers that share their hosts check the servers' statuses.

        Called after events on which they may have to act: workers have joined or left, or a server
        may have refused a message.

        Args:
            ranks: ranks of the workers; None for all.
        """
        for rank in self.hosts if ranks is None else ranks:
            if rank in self.waiting:
                self.waiting[rank].poke()

    def changed(self, senders: Sequence[int], time: float) -> None:
        """Wake the workers whose payloads have been used.

        Called when a server has handled a message of these ranks, at `time`.
        """
        round_states = [node.round_state for node in self.nodes]
        # An asynchronous commit affects its sender only. The end of a round resumes all workers, and
        # so may the commit of a slow worker (bounded staleness).
        state = [
            (round_state.version if round_state.synchronous else -1, round_state.released, round_state.failure)
            for round_state in round_states
        ]
        ranks = senders if state == self._seen else list(self.waiting)
        self._seen = state
        for rank in ranks:
            if rank in self.waiting and self.waiting[rank].check(time):
                del self.waiting[rank]
