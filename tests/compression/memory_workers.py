"""Servers of compressed exchanges in this process, and workers that speak the wire protocol with them."""

from collections.abc import Sequence

import numpy as np

from esync.exchange import STATISTICS, WEIGHTS, Flat, Specification
from esync.exchange.codecs.choice import codec_of
from esync.exchange.protocol import wire
from esync.exchange.protocol.endpoint import serve
from esync.exchange.protocol.greeting import Greeting
from esync.exchange.protocol.ledger import Limits
from esync.exchange.protocol.parameter_server import ParameterServer


class MemoryServers:
    """The servers, with a model in place; a dict stands for ps-lite. Nonces are 1000 + rank unless given."""

    def __init__(
        self,
        compression: str,
        workers: int,
        tensors: Sequence[int],
        weights: np.ndarray,
        *,
        servers: int = 1,
        bucket_elements: int = 16,
        rule: str = "add_mean_update",
    ) -> None:
        self.workers = workers
        self.specification = specification = Specification(rule, True, compression=compression, tensors=list(tensors))
        greeting = Greeting(
            rank=0,
            nonce=1000,
            slots=workers,
            sizes={WEIGHTS: weights.size, STATISTICS: 0},
            servers=servers,
            bucket_elements=bucket_elements,
            specification=specification,
            limits=Limits(),
        )
        assert Greeting.decode(greeting.encode()) == greeting
        self.layout = greeting.layout()
        self.servers: list[ParameterServer] = [serve(greeting, shard, lambda: 0.0) for shard in range(servers)]
        self.stored: dict[int, np.ndarray] = {}
        self.elements = wire.message_elements(workers)
        for shard in range(servers):
            self.push(shard, shard, np.zeros(self.elements, np.float32))
        for _ in range(2):
            for bucket in self.layout.buckets:
                array = np.zeros(wire.HEADER_ELEMENTS + bucket.stop - bucket.start, np.float32)
                array[wire.HEADER_ELEMENTS :] = weights[bucket.start : bucket.stop]
                self.push(bucket.shard, self.layout.key(bucket), array)

    def push(self, shard: int, key: int, values: np.ndarray) -> None:
        """The first value of a key is kept without asking."""
        if key not in self.stored:
            self.stored[key] = values.copy()
        else:
            self.servers[shard].push(key, values.copy(), self.stored[key])

    def weights(self) -> np.ndarray:
        """What a worker that comes now gets."""
        return np.concatenate(
            [self.stored[self.layout.key(bucket)][wire.HEADER_ELEMENTS :] for bucket in self.layout.buckets]
        )

    def exact(self) -> np.ndarray:
        """What the rule works on."""
        return np.concatenate([self.servers[b.shard]._shelves[b.index].weights for b in self.layout.buckets])

    def status(self, shard: int = 0) -> np.void:
        return wire.unpack(self.stored[shard], wire.status_type(self.workers))


class MemoryWorker:
    """One worker; `held` are the weights that it has."""

    def __init__(self, cluster: MemoryServers, rank: int, nonce: int | None = None, sequence: int = 0) -> None:
        self.cluster, self.rank, self.sequence = cluster, rank, sequence
        self.nonce = 1000 + rank if nonce is None else nonce
        for server in cluster.servers:
            server.join(rank, self.nonce)
        layout = cluster.layout
        for shard in range(layout.servers):
            self.say(wire.NOTHING, shard)
        self.held = cluster.weights()
        common = {bucket.index: self.held[bucket.start : bucket.stop].copy() for bucket in layout.buckets}
        steps = [int(cluster.status(shard)["step"]) for shard in range(layout.servers)]
        self.codec = codec_of(cluster.specification, layout, cluster.workers, rank)
        self.codec.decoder.begin(common, steps)

    def say(self, kind: int, shard: int, **fields: object) -> None:
        record = wire.message(kind, rank=self.rank, nonce=self.nonce, sequence=self.sequence, **fields)
        self.cluster.push(shard, shard, wire.pack(record, self.cluster.elements))

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        self.held[start : start + values.size] = values

    def send(self, update: np.ndarray, servers: Sequence[int] | None = None, learning_rate: float = 1.0) -> None:
        """A payload and its commits, to all servers or to some."""
        self.sequence += 1
        rooms: dict[int, np.ndarray] = {}

        def room(key: int, size: int) -> np.ndarray:
            rooms[key] = np.zeros(wire.HEADER_ELEMENTS + size, np.float32)
            return rooms[key][wire.HEADER_ELEMENTS :]

        pushed = [0] * self.cluster.layout.servers
        everywhere = range(self.cluster.layout.servers) if servers is None else servers
        for shard, key, place in self.codec.encoder.write(Flat(np.float32(update)), room):
            if shard in everywhere:
                self._open(shard, key, rooms[key].size)
                wire.stamp(rooms[key], wire.PAYLOAD, self.rank, self.nonce, self.sequence, place)
                self.cluster.push(shard, key, rooms[key])
                pushed[shard] += 1
        for shard in everywhere:
            self.say(wire.COMMIT, shard, samples=1, buckets=pushed[shard], learning_rate=learning_rate)

    def fetch(self) -> None:
        """Take the answers."""
        for shard in range(self.cluster.layout.servers):
            status = self.cluster.status(shard)
            assert status["acknowledged"][self.rank] == self.sequence, status["text"]
            length = int(status["answer"][self.rank])
            arrays = []
            for key, size in self.codec.decoder.wanted(shard, length):
                self._open(shard, key, wire.HEADER_ELEMENTS + size)
                arrays.append(self.cluster.stored[key].copy())
            self.codec.decoder.read(shard, arrays, length, self)  # type: ignore[arg-type]

    def _open(self, shard: int, key: int, size: int) -> None:
        for _ in range(2):
            array = np.zeros(size, np.float32)
            wire.stamp(array, wire.NOTHING, self.rank, self.nonce, self.sequence, 0)
            self.cluster.push(shard, key, array)


def round_of(crowd: Sequence[MemoryWorker], updates: Sequence[np.ndarray], learning_rate: float = 1.0) -> None:
    """All of them exchange once."""
    for each, update in zip(crowd, updates, strict=True):
        each.send(update, learning_rate=learning_rate)
    for each in crowd:
        each.fetch()
