"""Parameter servers in this process: a dict stands for ps-lite's store, a number for the clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from esync.exchange.protocol import wire
from esync.exchange.protocol.inbox import HostMemory
from esync.exchange.protocol.layout import Layout
from esync.exchange.protocol.ledger import Ledger, Limits
from esync.exchange.protocol.parameter_server import ParameterServer
from esync.rules import Rule, sgd


class Clock:
    """Shows what it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, eq=False)
class Push:
    """One push of a worker to one key."""

    shard: int
    key: int
    values: np.ndarray


class Node:
    """One server, and the arrays that the key store keeps for it."""

    def __init__(self, server: ParameterServer) -> None:
        self.server = server
        self.stored: dict[int, np.ndarray] = {}

    def push(self, key: int, values: np.ndarray) -> None:
        """As ps-lite does it: the first value of a key is kept without asking, later ones go to the updater."""
        if key not in self.stored:
            self.stored[key] = values.copy()
            return
        received = values.copy()
        self.server.push(key, received, self.stored[key])
        received.fill(np.nan)  # the request's memory is freed when the updater returns


class MemoryServers:
    """The servers of one run, with the model of rank 0 in place. Nonces are 1000 + rank unless given."""

    def __init__(
        self,
        workers: int,
        weights: Sequence[float] | np.ndarray,
        statistics: Sequence[float] | np.ndarray = (),
        *,
        servers: int = 1,
        bucket_elements: int = 4,
        rule: Rule = sgd,
        synchronous: bool = True,
        private: bool = False,
        limits: Limits | None = None,
        joined: bool = True,
        weighting: str = "uniform",
    ) -> None:
        self.workers, self.private, self.clock = workers, private, Clock()
        self.layout = Layout(len(weights), len(statistics), servers, bucket_elements)
        self.elements = wire.message_elements(workers)
        self.nodes = []
        for _ in range(servers):
            ledger = Ledger(workers, synchronous, limits or Limits())
            self.nodes.append(
                Node(ParameterServer(self.layout, ledger, rule, private, self.clock, HostMemory(), weighting))
            )
        for shard in range(servers):
            self.deliver(Push(shard, self.layout.status_key(shard), np.zeros(self.elements, np.float32)))
        if joined:
            for rank in range(workers):
                self.join(rank)
        for channel in range(workers + 1 if private else 1):
            for _ in range(2):  # the first sets the key up, the second shows the server where it is
                for push in self.buckets(max(channel - 1, 0), 0, weights, statistics, wire.NOTHING, channel=channel):
                    self.deliver(push)

    # --- what workers do ------------------------------------------------------------------------------------------

    def join(self, rank: int, nonce: int | None = None) -> None:
        """Greet every server."""
        nonce = 1000 + rank if nonce is None else nonce
        for node in self.nodes:
            node.server.join(rank, nonce)
        self.say(wire.NOTHING, rank, nonce=nonce)

    def buckets(
        self,
        rank: int,
        sequence: int,
        values: Sequence[float] | np.ndarray,
        statistics: Sequence[float] | np.ndarray | None = None,
        kind: int = wire.PAYLOAD,
        nonce: int | None = None,
        channel: int | None = None,
    ) -> list[Push]:
        """The pushes of a payload, without its commit."""
        pushes = []
        for bucket in self.layout.buckets:
            source = statistics if bucket.statistics else values
            if source is None:
                continue
            array = np.zeros(wire.HEADER_ELEMENTS + bucket.stop - bucket.start, np.float32)
            header = wire.header_of(array)
            header["kind"], header["rank"], header["sequence"], header["bucket"] = kind, rank, sequence, bucket.index
            header["nonce"] = 1000 + rank if nonce is None else nonce
            array[wire.HEADER_ELEMENTS :] = source[bucket.start : bucket.stop]
            if channel is None:
                channel = rank + 1 if self.private else 0
            pushes.append(Push(bucket.shard, self.layout.key(bucket, channel), array))
        return pushes

    def commits(
        self,
        rank: int,
        sequence: int,
        learning_rate: float = 1.0,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        gradient_scale: float = 1.0,
        samples: int = 1,
        statistics: bool = True,
        nonce: int | None = None,
        use: int = wire.AS_AGREED,
        switch: int = wire.AS_AGREED,
        text: bytes = b"",
    ) -> list[Push]:
        """The commit, for every server."""
        pushes = []
        for shard in range(self.layout.servers):
            mine = [b for b in self.layout.buckets if b.shard == shard and (statistics or not b.statistics)]
            fields = {
                "learning_rate": learning_rate,
                "momentum": momentum,
                "weight_decay": weight_decay,
                "gradient_scale": gradient_scale,
                "samples": samples,
                "buckets": len(mine),
                "use": use,
                "switch": switch,
                "text": text,
            }
            pushes.append(self.message(shard, wire.COMMIT, rank, nonce, sequence=sequence, **fields))
        return pushes

    def message(self, shard: int, kind: int, rank: int, nonce: int | None = None, **fields: object) -> Push:
        """One message to one server."""
        record = wire.message(kind, rank=rank, nonce=1000 + rank if nonce is None else nonce, **fields)
        return Push(shard, self.layout.status_key(shard), wire.pack(record, self.elements))

    def say(self, kind: int, rank: int, **fields: object) -> None:
        """A message to every server."""
        for shard in range(self.layout.servers):
            self.deliver(self.message(shard, kind, rank, **fields))

    def payload(
        self, rank: int, sequence: int, values: np.ndarray, statistics: np.ndarray | None = None, **fields: Any
    ) -> list[Push]:
        """Buckets and commit."""
        has = statistics is not None
        return [
            *self.buckets(rank, sequence, values, statistics),
            *self.commits(rank, sequence, statistics=has, **fields),  # type: ignore[arg-type]
        ]

    def send(
        self, rank: int, sequence: int, values: np.ndarray, statistics: np.ndarray | None = None, **fields: Any
    ) -> None:
        """A whole payload, in the usual order."""
        self.deliver(*self.payload(rank, sequence, values, statistics, **fields))

    def deliver(self, *pushes: Push) -> None:
        """Let them arrive in this order."""
        for push in pushes:
            self.nodes[push.shard].push(push.key, push.values)

    # --- what workers see -----------------------------------------------------------------------------------------

    def status(self, shard: int = 0) -> np.void:
        """What a pull of the status gives."""
        return wire.unpack(self.nodes[shard].stored[self.layout.status_key(shard)], wire.status_type(self.workers))

    def weights(self, channel: int = 0) -> np.ndarray:
        """What a pull of the weights gives."""
        return self._pull(False, channel)

    def statistics(self, channel: int = 0) -> np.ndarray:
        """What a pull of the statistics gives."""
        return self._pull(True, channel)

    @property
    def memories(self) -> list[HostMemory]:
        """The working memory of every server."""
        return [node.server.memory for node in self.nodes]  # type: ignore[misc]

    def _pull(self, statistics: bool, channel: int) -> np.ndarray:
        flat = np.empty(self.layout.statistics if statistics else self.layout.weights, np.float32)
        for bucket in self.layout.buckets:
            if bucket.statistics == statistics:
                stored = self.nodes[bucket.shard].stored[self.layout.key(bucket, channel)]
                flat[bucket.start : bucket.stop] = stored[wire.HEADER_ELEMENTS :]
        return flat


def floats(seed: int, count: int) -> np.ndarray:
    """Float32 values of very different sizes, so that the order of a sum shows in its bits."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-4, 5, count)).astype(np.float32)


def mean_in_rank_order(payloads: Sequence[np.ndarray], order: Callable[[int], int] = lambda rank: rank) -> np.ndarray:
    """((p0 + p1) + p2 + …) ÷ count, in float32."""
    total = payloads[order(0)].copy()
    for rank in range(1, len(payloads)):
        total = total + payloads[order(rank)]
    return total / np.float32(len(payloads))


def interleaved(draw: st.DrawFn, streams: list[list[Push]]) -> list[Push]:
    """All pushes in some order; ps-lite lets pushes of different keys overtake each other."""
    pushes = [push for stream in streams for push in stream]
    return draw(st.permutations(pushes))
