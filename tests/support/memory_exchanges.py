"""Real exchanges of several workers with servers in memory.

With `MemoryExchanges` a test tells each worker what to do, step by step.
"""

import copy
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from esync.exchange import STATISTICS, WEIGHTS, Control, Flat, Payload, Specification, Use
from esync.exchange.codecs.base import WorkerCodec
from esync.exchange.protocol import wire
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.parameter_server import ParameterServer
from esync.exchange.protocol.resume_negotiation import ResumeState
from esync.exchange.protocol.round_state import Limits
from esync.exchange.protocol.store import ArraySpec

from .memory_cluster import KilledError, MemoryCluster, MemoryStore
from .vectors import Held, sources


@dataclass
class Kept:
    """The content of a checkpoint: rank 0's weights, each worker's progress, and unsent values."""

    weights: np.ndarray
    states: list[ResumeState]
    unsent: list[dict[str, Any]]


class MemoryExchanges:
    """The servers, and workers that all have joined; there are no statistics.

    Every call returns when nothing is under way any more; a seed says in what order things happen
    until then.

    Attributes:
        momentum: of all payloads.
    """

    momentum = 0.0

    def __init__(
        self,
        asked: Specification,
        workers: int,
        weights: np.ndarray,
        servers: int,
        bucket_elements: int,
        seed: int = 0,
        lease: float = math.inf,
        limits: Limits | None = None,
        kept: Kept | None = None,
        hosts: Sequence[Sequence[int]] = (),
    ) -> None:
        self.asked, self.initial, self.kept = asked, weights if kept is None else kept.weights, kept
        self.limits = limits or Limits()
        choose = random.Random(seed).randrange
        self.cluster = MemoryCluster(
            workers, choose, servers, bucket_elements=bucket_elements, lease=lease, hosts=hosts
        )
        self.workers = [Worker(self, rank) for rank in range(workers)]
        self.cluster.run()
        self.kept = None  # who comes from now on is a replacement
        self.layout = self.workers[0].exchange.layout

    @property
    def servers(self) -> list[ParameterServer]:
        return [node.endpoint.server for node in self.cluster.nodes]

    def checkpoint(self) -> Kept:
        """What the workers would write down now."""
        first, states = self.workers[0], [ResumeState(worker.exchange.sequence) for worker in self.workers]

        def fetch() -> None:
            states[0].progress = first.result.progress
            states[0].rule_state = first.exchange.rule_state()
            states[0].weights = first.exchange.server_weights()

        first.spawn(fetch)
        self.cluster.run()
        return Kept(first.weights.copy(), states, self.unsent())

    def unsent(self) -> list[dict[str, Any]]:
        """What each worker has not sent yet."""
        unsent: dict[int, dict[str, Any]] = {}
        for worker in self.workers:
            worker.spawn(lambda worker=worker: unsent.update({worker.rank: copy.deepcopy(worker.exchange.unsent())}))
        self.cluster.run()
        return [unsent[worker.rank] for worker in self.workers]

    def replace(self, rank: int) -> "Worker":
        """Let another process take the place of a worker."""
        self.workers[rank] = Worker(self, rank)
        self.cluster.run()
        return self.workers[rank]

    def drop(self, rank: int) -> None:
        """Let the servers go on without a worker."""
        for server in self.servers:
            server.drop(rank)

    def round(
        self,
        crowd: Sequence["Worker"],
        updates: Sequence[np.ndarray] | None = None,
        learning_rate: float = 1.0,
        **terms: Any,
    ) -> None:
        """Let these workers exchange once, all at the same time; `terms` are of their payloads.

        Without `updates`, each sends ones.
        """
        for worker, update in zip(crowd, updates or [None] * len(crowd), strict=True):
            worker.spawn(partial(worker.exchange_once, update, learning_rate, **terms))
        self.cluster.run()

    def states(self, name: str) -> list[Any]:
        """An attribute of each server's round state."""
        values = [getattr(server.round_state, name) for server in self.servers]
        return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]

    def agrees_with(self, *workers: "Worker") -> bool:
        """Whether these workers hold what the servers answer."""
        return {worker.weights.tobytes() for worker in workers} == {self.weights().tobytes()}

    @property
    def exact(self) -> np.ndarray:
        """The weights that the rule works on."""
        buckets = self.layout.of(WEIGHTS)
        return np.concatenate([self.servers[bucket.shard].model.buckets[bucket.index].weights for bucket in buckets])

    def weights(self, channel: int = 0) -> np.ndarray:
        """What pulls of a channel give, r + 1 being that of worker r alone."""
        buckets = [(bucket.shard, self.layout.key(bucket, channel)) for bucket in self.layout.of(WEIGHTS)]
        return np.concatenate([self.cluster.nodes[at].stored[key][wire.HEADER_ELEMENTS :] for at, key in buckets])


class Worker(Held):
    """What one worker has, and its exchange."""

    def __init__(self, side: MemoryExchanges, rank: int) -> None:
        sizes = {WEIGHTS: side.initial.size, STATISTICS: 0}
        super().__init__(sizes)

        def begin(store: MemoryStore) -> None:
            exchange, kept = self.exchange, side.kept
            exchange.join(sizes, side.limits, {})
            if kept is not None:
                exchange.resume(kept.states[rank])
            self.result = exchange.begin(sources({WEIGHTS: side.initial, STATISTICS: np.empty(0, np.float32)}), self)
            if kept is not None and kept.unsent[rank]:
                exchange.restore_unsent(kept.unsent[rank])

        self.rank, self._cluster, self._side = rank, side.cluster, side
        self.store = side.cluster.start(rank, begin)
        self.exchange = ParameterServerExchange(side.asked, self.store, host_group=side.cluster.host_group(self.store))

    @property
    def codec(self) -> WorkerCodec:
        """Of its weights."""
        return self.exchange.transfer.codecs[WEIGHTS]

    def spawn(self, work: Callable[[], Any]) -> None:
        """Have something done when the cluster runs."""
        self._cluster.spawn(f"worker {self.rank}", self.store.nonce, work, fatal=True)

    def send(self, update: np.ndarray | None = None, learning_rate: float = 1.0, **terms: Any) -> None:
        """Send a payload and its commits."""
        self.spawn(partial(self.start, update, learning_rate, **terms))
        self._cluster.run()

    def fetch(self) -> None:
        """Take the answers to it."""
        self.spawn(self._wait)
        self._cluster.run()

    def exchange_once(self, update: np.ndarray | None = None, learning_rate: float = 1.0, **terms: Any) -> None:
        """Both, as part of its own work."""
        self.start(update, learning_rate, **terms)
        self._wait()

    def die(self, update: np.ndarray | None = None, *, before: int, **terms: Any) -> None:
        """Send a payload, but die before its commit to this server.

        Only some of the arrays arrive there.
        """

        def look(server: int, arrays: list[np.ndarray], message: Mapping[str, Any] | None) -> None:
            if message is not None and server == before:
                raise KilledError

        self.before_sending(look)
        self._cluster.stopped.update(range(before, self.store.servers))
        self.send(update, **terms)
        self._cluster.kill(self.rank)
        self._cluster.stopped.clear()
        self._cluster.run()

    def before_sending(self, look: Callable[[int, list[np.ndarray], Mapping[str, Any] | None], object]) -> None:
        """Have this called before everything that is sent.

        It gets the server, the arrays without headers, and the message.
        """

        def send(
            server: int,
            places: Iterable[ArraySpec],
            message: Mapping[str, Any] | None = None,
            others: Sequence[Any] = (),
        ) -> None:
            places = list(places)
            look(server, [self.store.buffer(*place)[wire.HEADER_ELEMENTS :] for place in places], message)
            MemoryStore.send(self.store, server, places, message, others)

        self.store.send = send

    def _wait(self) -> None:
        self.result = self._pending.wait()

    def start(
        self,
        update: np.ndarray | None = None,
        learning_rate: float = 1.0,
        use: Use = Use.AS_AGREED,
        compression: str = "",
        **requests: Any,
    ) -> None:
        """Send a payload, of ones unless another one is given, and its commits, as part of its own work."""
        if update is None:
            update = np.ones_like(self.weights)
        vectors, step = {WEIGHTS: Flat(np.asarray(update, np.float32))}, None
        if self.exchange.specification.sparse:
            places = np.flatnonzero(update)
            vectors, step = {}, (places, update[places])
        control = Control(use, **requests)
        payload = Payload(
            vectors, 1, learning_rate, self._side.momentum, step=step, compression=compression, control=control
        )
        self._pending = self.exchange.start(payload, self)
