"""Sparse servers in this process, and workers that speak the wire protocol with them; a dict stands for ps-lite."""

from collections.abc import Sequence

import numpy as np

from esync.exchange import STATISTICS, WEIGHTS, Specification
from esync.exchange.codecs.choice import codec_of
from esync.exchange.codecs.shards import Shard
from esync.exchange.codecs.sparse_difference import DifferenceDownlink
from esync.exchange.protocol import wire
from esync.exchange.protocol.endpoint import serve
from esync.exchange.protocol.greeting import Greeting
from esync.exchange.protocol.ledger import Limits
from esync.exchange.protocol.parameter_server import ParameterServer
from esync.sparse import Differences, Sparse, bounds_of
from esync.sparse.marks import list_marked, no_marks

#: Key, and an array with its header.
Piece = tuple[int, np.ndarray]


class MemoryCluster:
    """The servers, with a model in place."""

    def __init__(
        self,
        workers: int,
        tensors: Sequence[int],
        weights: np.ndarray,
        *,
        servers: int = 1,
        bucket_elements: int = 8,
        secondary_ratio: float = 0.0,
        dense_below: int = 0,
        values: str = "float32",
    ) -> None:
        differences = {"secondary_ratio": secondary_ratio, "dense_below": dense_below, "values": values}
        options = {"tensors": list(tensors), **differences}
        self.workers = workers
        self.replaces = Differences(secondary_ratio, dense_below, values).replace
        self.specification = specification = Specification(
            "difference", False, options, private=not self.replaces, sparse=True
        )
        greeting = Greeting(
            rank=0,
            nonce=1,
            slots=workers,
            sizes={WEIGHTS: weights.size, STATISTICS: 0},
            servers=servers,
            bucket_elements=bucket_elements,
            specification=specification,
            limits=Limits(),
        )
        self.layout = greeting.layout()
        self.servers = [serve(greeting, each, lambda: 0.0) for each in range(servers)]
        self.shards = [Shard(self.layout, each, bounds_of(tensors)) for each in range(servers)]
        self.stored: dict[int, np.ndarray] = {}
        self.elements = wire.message_elements(workers)
        for shard in range(servers):
            self.push(shard, self.layout.status_key(shard), np.zeros(self.elements, np.float32))
        self.push_buckets(0, 0, 1, weights)
        self.push_buckets(0, 0, 1, weights)

    def push(self, shard: int, key: int, values: np.ndarray) -> None:
        """The first value of a key is kept without asking."""
        if key not in self.stored:
            self.stored[key] = values.copy()
        else:
            self.servers[shard].push(key, values.copy(), self.stored[key])

    def push_buckets(self, channel: int, rank: int, nonce: int, weights: np.ndarray) -> None:
        for bucket in self.layout.buckets:
            array = np.zeros(wire.HEADER_ELEMENTS + bucket.stop - bucket.start, np.float32)
            wire.stamp(array, wire.NOTHING, rank, nonce, 0, bucket.index)
            array[wire.HEADER_ELEMENTS :] = weights[bucket.start : bucket.stop]
            self.push(bucket.shard, self.layout.key(bucket, channel), array)

    def weights(self, channel: int = 0) -> np.ndarray:
        """What a pull of a channel gives."""
        flat = np.empty(self.layout.sizes[WEIGHTS], np.float32)
        for bucket in self.layout.buckets:
            flat[bucket.start : bucket.stop] = self.stored[self.layout.key(bucket, channel)][wire.HEADER_ELEMENTS :]
        return flat

    def believed(self, worker: "MemoryWorker") -> np.ndarray:
        """The weights that the servers believe a worker to have.

        Where answers are new values, they only know where it has the model's, which is everywhere but at what is
        pending for it.
        """
        if not self.replaces:
            return self.weights(worker.rank + 1)
        flat = self.weights()
        for server, shard in zip(self.servers, self.shards, strict=True):
            bits = no_marks(shard.size)
            downlink_of(server).pending(worker.rank).mark(bits)
            places = np.empty(shard.size, np.int64)
            pending = places[: list_marked(bits, places)]
            indices, _ = shard.give((pending, np.zeros(pending.size, np.float32)))
            flat[indices] = worker.theta[indices]
        return flat

    def status(self, shard: int = 0) -> np.void:
        return wire.unpack(self.stored[self.layout.status_key(shard)], wire.status_type(self.workers))


def downlink_of(server: ParameterServer) -> DifferenceDownlink:
    """What a server keeps track of its workers with."""
    assert isinstance(server.downlink, DifferenceDownlink)
    return server.downlink


class MemoryWorker:
    """One worker; `theta` are its weights."""

    def __init__(self, cluster: MemoryCluster, rank: int, nonce: int) -> None:
        self.cluster, self.rank, self.nonce, self.sequence = cluster, rank, nonce, 0
        for server in cluster.servers:
            server.join(rank, nonce)
        self.say(wire.NOTHING)
        self.sequence = min(int(cluster.status(s)["acknowledged"][rank]) for s in range(cluster.layout.servers))
        self.theta = cluster.weights()
        self.codec = codec_of(cluster.specification, cluster.layout, cluster.workers, rank)
        self._known: set[int] = set()
        if not cluster.replaces:
            cluster.push_buckets(rank + 1, rank, nonce, self.theta)
            cluster.push_buckets(rank + 1, rank, nonce, self.theta)

    def say(self, kind: int, shard: int | None = None, **fields: object) -> None:
        record = wire.message(kind, rank=self.rank, nonce=self.nonce, sequence=self.sequence, **fields)
        for each in range(self.cluster.layout.servers) if shard is None else (shard,):
            self.cluster.push(each, self.cluster.layout.status_key(each), wire.pack(record, self.cluster.elements))

    def pack(self, step: Sparse) -> list[list[Piece]]:
        """The pieces of a step's messages, for each server."""
        rooms: dict[int, np.ndarray] = {}

        def room(key: int, size: int) -> np.ndarray:
            rooms[key] = np.zeros(wire.HEADER_ELEMENTS + size, np.float32)
            return rooms[key][wire.HEADER_ELEMENTS :]

        pieces: list[list[Piece]] = [[] for _ in self.cluster.servers]
        for shard, key, place in self.codec.encoder.write(step, room):
            wire.stamp(rooms[key], wire.PAYLOAD, self.rank, self.nonce, self.sequence, place)
            pieces[shard].append((key, rooms[key]))
        return pieces

    def send(self, shard: int, pieces: list[Piece], commit: bool = True) -> None:
        """Push the pieces of a message, and its commit."""
        for key, array in pieces:
            self.cluster.push(shard, self._open(key, array.size, shard), array)
        if commit:
            self.say(wire.COMMIT, shard, samples=1, buckets=len(pieces))

    def fetch(self, shard: int) -> None:
        """Add what a server owes this worker."""
        status = self.cluster.status(shard)
        assert status["acknowledged"][self.rank] == self.sequence
        length = int(status["answer"][self.rank])
        wanted = self.codec.decoder.wanted(shard, length)
        arrays = [self.cluster.stored[self._open(key, wire.HEADER_ELEMENTS + size, shard)] for key, size in wanted]
        self.codec.decoder.read(shard, arrays, length, self)  # type: ignore[arg-type]

    def add(self, step: Sparse) -> None:
        """See `exchange.Model`."""
        self.theta[step[0]] += step[1]

    def put(self, step: Sparse) -> None:
        """See `exchange.Model`."""
        self.theta[step[0]] = step[1]

    def exchange(self, step: np.ndarray) -> None:
        """Send a dense step as a sparse one, take the answers."""
        self.sequence += 1
        places = np.flatnonzero(step)
        for shard, pieces in enumerate(self.pack((places, step[places]))):
            self.send(shard, pieces)
            self.fetch(shard)

    def _open(self, key: int, size: int, shard: int) -> int:
        if key not in self._known:
            self._known.add(key)
            array = np.zeros(size, np.float32)
            wire.stamp(array, wire.NOTHING, self.rank, self.nonce, self.sequence, 0)
            for _ in range(2):
                self.cluster.push(shard, key, array)
        return key
