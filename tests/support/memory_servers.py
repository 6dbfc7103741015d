"""Parameter servers in this process: a dict stands for ps-lite's store, a number for the clock."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from esync.exchange.codecs.base import Downlink, Uplink
from esync.exchange.protocol import wire
from esync.exchange.protocol.layout import STATISTICS, WEIGHTS, Layout
from esync.exchange.protocol.parameter_server import ParameterServer
from esync.exchange.protocol.payload_staging import HostMemory
from esync.exchange.protocol.round_state import Limits, RoundState
from esync.exchange.protocol.specification import Specification
from esync.rules import Rule, replace_by_mean, sgd


class Clock:
    """Shows what it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class CountingMemory(HostMemory):
    """Host memory that knows how many bytes are staged at present, and were at most."""

    def __init__(self) -> None:
        super().__init__()
        self.staged_bytes = self.peak_bytes = 0

    def stage(self, values: np.ndarray) -> np.ndarray:
        copy = super().stage(values)
        self.staged_bytes += copy.nbytes
        self.peak_bytes = max(self.peak_bytes, self.staged_bytes)
        return copy

    def release(self, arrays: Iterable[np.ndarray]) -> None:
        arrays = list(arrays)
        self.staged_bytes -= sum(array.nbytes for array in arrays)
        super().release(arrays)


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
        """Take a push as ps-lite does.

        The first value of a key is stored unseen, later ones go to the updater.
        """
        if key not in self.stored:
            self.stored[key] = values.copy()
            return
        received = values.copy()
        self.server.push(key, received, self.stored[key])
        received.fill(np.nan)  # the request's memory is freed when the updater returns


class MemoryServers:
    """The servers of one run, with the model of rank 0. Nonces are 1000 + rank unless given."""

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
        statistics_weighting: str = "as-updates",
        further: Mapping[str, tuple[Rule, np.ndarray]] | None = None,
        scalars: Mapping[str, str] | None = None,
    ) -> None:
        """Make the servers.

        `further` maps the names of vectors to rules and values, `scalars` those of scalars to the
        way in which they are combined.
        """
        self.scalars = scalars or {}
        self.workers, self.private, self.clock = workers, private, Clock()
        vectors = {WEIGHTS: weights, STATISTICS: statistics, **{name: at for name, (_, at) in (further or {}).items()}}
        rules = {WEIGHTS: rule, STATISTICS: replace_by_mean, **{name: at for name, (at, _) in (further or {}).items()}}
        self.layout = Layout({name: len(values) for name, values in vectors.items()}, servers, bucket_elements)
        self.elements = wire.message_elements(workers, self.scalars)
        counted = Specification(
            "sgd",
            synchronous,
            weighting=weighting,
            statistics_weighting=statistics_weighting,
            vectors=dict.fromkeys(further or {}, "sgd"),
        )
        self.nodes = []
        for _ in range(servers):
            round_state = RoundState(workers, synchronous, limits or Limits(), added=self.scalars)
            parts = Uplink(), Downlink(private), rules, self.clock, CountingMemory(), counted.weightings()
            self.nodes.append(Node(ParameterServer(self.layout, round_state, *parts)))
        for shard in range(servers):
            self.deliver(Push(shard, self.layout.status_key(shard), np.zeros(self.elements, np.float32)))
        if joined:
            for rank in range(workers):
                self.join(rank)
        for _ in range(2):  # the first sets the key up, the second shows the server where it is
            self.deliver(*self.vectors(0, 0, vectors, wire.NOTHING, channel=0))
            for rank in range(workers if private else 0):
                self.deliver(*self.vectors(rank, 0, {WEIGHTS: weights}, wire.NOTHING))

    # --- what workers do --------------------------------------------------------------------------

    def join(self, rank: int, nonce: int | None = None) -> None:
        """Introduce a worker to every server."""
        nonce = 1000 + rank if nonce is None else nonce
        for node in self.nodes:
            node.server.join(rank, nonce)
        self.say(wire.NOTHING, rank, nonce=nonce)

    def drop(self, rank: int) -> None:
        """Let every server go on without a worker."""
        for node in self.nodes:
            node.server.drop(rank)

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
        sent = {WEIGHTS: values} if statistics is None else {WEIGHTS: values, STATISTICS: statistics}
        return self.vectors(rank, sequence, sent, kind, nonce, channel)

    def vectors(
        self,
        rank: int,
        sequence: int,
        vectors: Mapping[str, Sequence[float] | np.ndarray],
        kind: int = wire.PAYLOAD,
        nonce: int | None = None,
        channel: int | None = None,
    ) -> list[Push]:
        """The same of any vectors; only weights have private channels."""
        pushes = []
        for bucket in self.layout.buckets:
            if bucket.vector not in vectors:
                continue
            source = vectors[bucket.vector]
            array = np.zeros(wire.HEADER_ELEMENTS + bucket.stop - bucket.start, np.float32)
            header = wire.header_of(array)
            header["kind"], header["rank"], header["sequence"], header["bucket"] = kind, rank, sequence, bucket.index
            header["nonce"] = 1000 + rank if nonce is None else nonce
            array[wire.HEADER_ELEMENTS :] = source[bucket.start : bucket.stop]
            private_channel = rank + 1 if self.private and bucket.vector == WEIGHTS else 0
            pushes.append(
                Push(bucket.shard, self.layout.key(bucket, private_channel if channel is None else channel), array)
            )
        return pushes

    def commits(
        self,
        rank: int,
        sequence: int,
        vectors: Collection[str] = (WEIGHTS, STATISTICS),
        nonce: int | None = None,
        **fields: Any,
    ) -> list[Push]:
        """The commit, for every server."""
        fields = {"learning_rate": 1.0, "samples": 1, "sequence": sequence, **fields}
        pushes = []
        for shard in range(self.layout.servers):
            buckets = sum(bucket.shard == shard and bucket.vector in vectors for bucket in self.layout.buckets)
            pushes.append(self.message(shard, wire.COMMIT, rank, nonce, buckets=buckets, **fields))
        return pushes

    def message(self, shard: int, kind: int, rank: int, nonce: int | None = None, **fields: object) -> Push:
        """One message to one server."""
        record = wire.message(kind, self.scalars, rank=rank, nonce=1000 + rank if nonce is None else nonce, **fields)
        return Push(shard, self.layout.status_key(shard), wire.pack(record, self.elements))

    def say(self, kind: int, rank: int, **fields: object) -> None:
        """A message to every server."""
        for shard in range(self.layout.servers):
            self.deliver(self.message(shard, kind, rank, **fields))

    def payload(
        self,
        rank: int,
        sequence: int,
        values: Sequence[float] | np.ndarray,
        statistics: Sequence[float] | np.ndarray | None = None,
        nonce: int | None = None,
        **fields: Any,
    ) -> list[Push]:
        """Buckets and commit."""
        sent = (WEIGHTS,) if statistics is None else (WEIGHTS, STATISTICS)
        return [
            *self.buckets(rank, sequence, values, statistics, nonce=nonce),
            *self.commits(rank, sequence, vectors=sent, nonce=nonce, **fields),
        ]

    def send(self, *payload: Any, **fields: Any) -> None:
        """A whole payload, in the usual order."""
        self.deliver(*self.payload(*payload, **fields))

    def deliver(self, *pushes: Push) -> None:
        """Let them arrive in this order."""
        for push in pushes:
            self.nodes[push.shard].push(push.key, push.values)

    # --- what workers see -------------------------------------------------------------------------

    def status(self, shard: int = 0) -> np.void:
        """What a pull of the status gives."""
        return wire.unpack(
            self.nodes[shard].stored[self.layout.status_key(shard)], wire.status_type(self.workers, self.scalars)
        )

    def weights(self, channel: int = 0) -> np.ndarray:
        """What a pull of the weights gives."""
        return self.vector(WEIGHTS, channel)

    def statistics(self) -> np.ndarray:
        """What a pull of the statistics gives."""
        return self.vector(STATISTICS)

    @property
    def memories(self) -> list[CountingMemory]:
        """The working memory of every server."""
        return [node.server.memory for node in self.nodes]

    def vector(self, name: str, channel: int = 0) -> np.ndarray:
        """What a pull of a vector gives."""
        flat = np.empty(self.layout.sizes[name], np.float32)
        for bucket in self.layout.of(name):
            stored = self.nodes[bucket.shard].stored[self.layout.key(bucket, channel)]
            flat[bucket.start : bucket.stop] = stored[wire.HEADER_ELEMENTS :]
        return flat


def floats(seed: int, count: int) -> np.ndarray:
    """Float32 values of very different sizes, so that the order of a sum shows in its bits."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-4, 5, count)).astype(np.float32)


def mean_in_rank_order(payloads: Sequence[np.ndarray]) -> np.ndarray:
    """((p0 + p1) + p2 + …) ÷ count, in float32."""
    total = payloads[0].copy()
    for payload in payloads[1:]:
        total = total + payload
    return total / np.float32(len(payloads))


def interleaved(draw: st.DrawFn, streams: list[list[Push]]) -> list[Push]:
    """All pushes in some order; ps-lite lets pushes of different keys overtake each other."""
    pushes = [push for stream in streams for push in stream]
    return draw(st.permutations(pushes))
