"""Sparse exchanges in virtual time: the real messages, as large as they are, over the modelled network."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..exchange import Model, Payload, Result, Source
from ..exchange.codecs.sparse_messages import SparseConversation
from ..exchange.protocol import wire
from ..exchange.protocol.layout import Bucket
from ..sparse import Sparse
from .exchange import SimulatedExchange
from .pending import Delivery, PendingExchange
from .pulling import Pull
from .servers import Push, ServerNode, wire_bytes


class SparseSimulatedExchange(SimulatedExchange):
    """Sends sparse steps, and lets what comes back go into the model."""

    def begin(self, weights: Source, statistics: Source, model: Model) -> Result:
        """See `Exchange.begin`."""
        self.messages = SparseConversation(self.layout, self.workers, self.service.options)
        self._known: set[tuple[int, int]] = set()
        return super().begin(weights, statistics, model)

    def start(self, payload: Payload, model: Model) -> PendingExchange:
        """Send the pieces of the step, the statistics where there are any, and the commit."""
        side, engine = self.side, self.side.engine
        self.sequence += 1
        begun = engine.now
        engine.pass_time(self.held(begun))
        pending = PendingExchange(self, model, payload.pulls_statistics, self.sequence, begun, engine.now)
        side.waiting[self.rank] = pending
        assert payload.step is not None, "a sparse exchange takes a sparse step"
        statistics = self._pushes(replace(payload, values=None))
        for node in side.nodes:
            pushes: list[Push] = statistics[node.shard]
            for place, (number, values) in enumerate(self.messages.write(payload.step, node.shard)):
                pushes.append((self.open(node, number, values.size), self._stamped(values, wire.PAYLOAD, place)))
            message = self._message(wire.COMMIT, **payload.terms, buckets=len(pushes))
            size = wire_bytes(values for _, values in pushes)
            self._send(node, size, len(pushes) + 1, Delivery(self, node, pushes, message))
        return pending

    def pull(self, statistics: bool, wake: Callable[[Any], None]) -> "SparsePull":
        """What the servers owe this worker."""
        return SparsePull(self, self.channel, statistics, wake)

    def open(self, node: ServerNode, number: int, size: int) -> int:
        """The key of a piece; the first value of a key is kept without asking, the second shows the server where."""
        key = self.messages.keys.key(self.rank, number, node.shard)
        if (node.shard, key) not in self._known:
            self._known.add((node.shard, key))
            for _ in range(2):
                node.take([(key, self._stamped(np.zeros(size, np.float32), wire.NOTHING, 0))])
        return key

    def _stamped(self, values: np.ndarray, kind: int, place: int) -> np.ndarray:
        array = np.zeros(wire.HEADER_ELEMENTS + values.size, np.float32)
        wire.stamp(array, kind, self.rank, self.nonce, self.sequence, place)
        array[wire.HEADER_ELEMENTS :] = values
        return array


class SparsePull(Pull):
    """One pull of sparse answers."""

    _exchange: SparseSimulatedExchange

    def write(self, model: Model) -> None:
        """Let what has come go into the model."""
        super().write(model)
        for step in self._steps:
            self._exchange.messages.take(step, model)

    def begin(self, at: float, first: Callable[[], bool] | None = None) -> None:
        """See `Pull.begin`."""
        self._steps: list[Sparse] = []
        super().begin(at, first)

    def _cost(self, node: ServerNode) -> tuple[float, int]:
        sizes = [size for _, size in self._wanted_pieces(node)]
        sizes += [bucket.stop - bucket.start for bucket in self._wanted_buckets(node)]
        return wire_bytes(np.empty(wire.HEADER_ELEMENTS + size, np.float32) for size in sizes), len(sizes)

    def _collect(self, node: ServerNode) -> None:
        exchange = self._exchange
        for bucket in self._wanted_buckets(node):
            values = node.values(exchange.layout.key(bucket, self._channel))
            self._answers.append((bucket, values[wire.HEADER_ELEMENTS :]))
        pieces = [
            node.stored(exchange.open(node, *piece))[wire.HEADER_ELEMENTS :] for piece in self._wanted_pieces(node)
        ]
        if pieces:
            length = int(node.ledger.answer[exchange.rank])
            self._steps.append(exchange.messages.read(pieces, length, node.shard))

    def _wanted_buckets(self, node: ServerNode) -> list[Bucket]:
        """The statistics of a server, where they are wanted."""
        buckets = self._exchange.carried if self._statistics else []
        return [bucket for bucket in buckets if bucket.statistics and bucket.shard == node.shard]

    def _wanted_pieces(self, node: ServerNode) -> list[tuple[int, int]]:
        """Number and size of the pieces of a server's answer."""
        length = int(node.ledger.answer[self._exchange.rank])
        return self._exchange.messages.wanted(length) if length else []
