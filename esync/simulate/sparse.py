"""Sparse exchanges in virtual time: the real messages, as large as they are, over the modelled network."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from ..exchange import WEIGHTS, Model, Payload, Result, Source
from ..exchange.codecs.choice import codec_of
from ..exchange.protocol import wire
from ..exchange.protocol.layout import Bucket
from .exchange import SimulatedExchange
from .pending import Delivery, PendingExchange
from .pulling import Pull
from .servers import ServerNode, wire_bytes


class SparseSimulatedExchange(SimulatedExchange):
    """Sends sparse steps, and lets what comes back go into the model."""

    def begin(self, vectors: Mapping[str, Source], model: Model) -> Result:
        """See `Exchange.begin`."""
        self.codec = codec_of(self.specification, self.layout, self.workers, self.rank)
        self._known: set[tuple[int, int]] = set()
        return super().begin(vectors, model)

    def start(self, payload: Payload, model: Model) -> PendingExchange:
        """Send the pieces of the step, the other vectors where there are any, and the commit."""
        side, engine = self.side, self.side.engine
        self.sequence += 1
        begun = engine.now
        engine.pass_time(self.held(begun))
        pending = PendingExchange(self, model, payload.returned, self.sequence, begun, engine.now)
        side.waiting[self.rank] = pending
        assert payload.step is not None, "a sparse exchange takes a sparse step"
        pushes_of = self._pushes(payload)
        rooms: dict[int, np.ndarray] = {}

        def room(key: int, size: int) -> np.ndarray:
            rooms[key] = np.zeros(wire.HEADER_ELEMENTS + size, np.float32)
            return rooms[key][wire.HEADER_ELEMENTS :]

        for shard, key, place in self.codec.write(payload.step, room):
            wire.stamp(rooms[key], wire.PAYLOAD, self.rank, self.nonce, self.sequence, place)
            pushes_of[shard].append((self.open(side.nodes[shard], key, rooms[key].size), rooms[key]))
        for node in side.nodes:
            pushes = pushes_of[node.shard]
            message = self._message(wire.COMMIT, **payload.terms, buckets=len(pushes))
            size = wire_bytes(values for _, values in pushes)
            self._send(node, size, len(pushes) + 1, Delivery(self, node, pushes, message))
        return pending

    def pull(self, vectors: Collection[str], wake: Callable[[Any], None]) -> "SparsePull":
        """What the servers owe this worker."""
        return SparsePull(self, self.channel, vectors, wake)

    def open(self, node: ServerNode, key: int, size: int) -> int:
        """The same key; the first value of one is kept without asking, the second shows the server where."""
        if (node.shard, key) not in self._known:
            self._known.add((node.shard, key))
            array = np.zeros(size, np.float32)
            wire.stamp(array, wire.NOTHING, self.rank, self.nonce, self.sequence, 0)
            node.take([(key, array), (key, array)])
        return key


class SparsePull(Pull):
    """One pull of sparse answers."""

    _exchange: SparseSimulatedExchange

    def write(self, model: Model) -> None:
        """Let what has come go into the model."""
        super().write(model)
        for shard, arrays, length in self._pieces:
            self._exchange.codec.read(shard, arrays, length, model)

    def begin(self, at: float, first: Callable[[], bool] | None = None) -> None:
        """See `Pull.begin`."""
        self._pieces: list[tuple[int, list[np.ndarray], int]] = []
        super().begin(at, first)

    def _cost(self, node: ServerNode) -> tuple[float, int]:
        sizes = [size for _, size in self._wanted_pieces(node)]
        sizes += [bucket.stop - bucket.start for bucket in self._wanted_buckets(node)]
        return wire_bytes(np.empty(wire.HEADER_ELEMENTS + size, np.float32) for size in sizes), len(sizes)

    def _collect(self, node: ServerNode) -> None:
        exchange = self._exchange
        for bucket in self._wanted_buckets(node):
            values = node.values(exchange.layout.key(bucket, self._channel(bucket.vector)))
            self._answers.append((bucket, values[wire.HEADER_ELEMENTS :]))
        pieces = [
            node.stored(exchange.open(node, key, wire.HEADER_ELEMENTS + size)).copy()
            for key, size in self._wanted_pieces(node)
        ]
        self._pieces.append((node.shard, pieces, int(node.ledger.answer[exchange.rank])))

    def _wanted_buckets(self, node: ServerNode) -> list[Bucket]:
        """The buckets of a server that travel as they are, where they are wanted."""
        others = set(self._vectors) - {WEIGHTS}
        return [each for each in self._exchange.carried if each.vector in others and each.shard == node.shard]

    def _wanted_pieces(self, node: ServerNode) -> list[tuple[int, int]]:
        """Key and size of the pieces of a server's answer."""
        return self._exchange.codec.wanted(node.shard, int(node.ledger.answer[self._exchange.rank]))
