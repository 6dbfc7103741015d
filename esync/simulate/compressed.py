"""Compressed exchanges in virtual time: the real packed messages, or as many bytes where there are no values."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .. import config
from ..exchange import WEIGHTS, Model, Payload, Result, Source
from ..exchange.codecs.choice import codec_of
from ..exchange.protocol import wire
from ..exchange.protocol.layout import Bucket, Layout
from .exchange import SimulatedExchange
from .pulling import Pull
from .servers import Push, ServerNode, modelled, wire_bytes


class CompressedSimulatedExchange(SimulatedExchange):
    """Sends the weights' part of a payload packed, and takes the packed steps of the common weights."""

    def begin(self, vectors: Mapping[str, Source], model: Model) -> Result:
        """See `Exchange.begin`."""
        result = super().begin(vectors, model)
        specification, nodes = self.specification, self.side.nodes
        self.codec = codec_of(specification, self.layout, self.workers, self.rank)
        trained = [bucket for bucket in self.carried if bucket.vector == WEIGHTS]
        self.codec.begin(
            {bucket.index: nodes[bucket.shard].weights(bucket).copy() for bucket in trained},
            [node.ledger.step for node in nodes],
        )
        self._rooms: dict[int, np.ndarray] = {}
        if self.side.model is not None:
            self.real = Layout(modelled(self.side.model, self.layout.sizes), len(nodes), self.side.bucket_elements)
            self.modelled = codec_of(specification, self.real, self.workers, self.rank)
        return result

    def pull(self, vectors: Collection[str], wake: Callable[[Any], None]) -> "CompressedPull":
        """What leads this worker's weights to the common ones."""
        return CompressedPull(self, self.channel, vectors, wake)

    def open(self, node: ServerNode, key: int, size: int) -> int:
        """The same key; the first value of one is kept without asking, the second one shows the server where."""
        if not node.has(key):
            header = np.zeros(size, np.float32)
            wire.stamp(header, wire.NOTHING, self.rank, self.nonce, self.sequence, 0)
            node.take([(key, header), (key, header)])
        return key

    def _pushes(self, payload: Payload) -> list[list[Push]]:
        others = {name: source for name, source in payload.vectors.items() if name != WEIGHTS}
        pushes = super()._pushes(replace(payload, vectors=others))
        if self.side.model is None and WEIGHTS in payload.vectors:
            for shard, key, place in self.codec.write(payload.vectors[WEIGHTS], self._room):
                wire.stamp(self._rooms[key], wire.PAYLOAD, self.rank, self.nonce, self.sequence, place)
                pushes[shard].append((self.open(self.side.nodes[shard], key, self._rooms[key].size), self._rooms[key]))
        return pushes

    def _amount(self, node: ServerNode, vectors: Collection[str], pushes: list[Push]) -> tuple[float, int]:
        if self.side.model is not None:
            return self.amount(node, self.modelled.sizes(node.shard), vectors)
        return wire_bytes(values for _, values in pushes), len(pushes)

    def amount(self, node: ServerNode, sizes: list[int], vectors: Collection[str]) -> tuple[float, int]:
        """Bytes and messages of arrays of these sizes, and of the other vectors, where no values go over the wire."""
        others = set(vectors) - {WEIGHTS}
        buckets = [each for each in self.real.buckets if each.vector in others and each.shard == node.shard]
        sizes = [*sizes, *(each.stop - each.start for each in buckets)]
        return sum(array_bytes(size) for size in sizes), len(sizes)

    def _room(self, key: int, size: int) -> np.ndarray:
        """A new array for every payload: this one may still be on its way when the next one is made."""
        self._rooms[key] = np.zeros(wire.HEADER_ELEMENTS + size, np.float32)
        return self._rooms[key][wire.HEADER_ELEMENTS :]


class CompressedPull(Pull):
    """One pull of packed answers, and of the other vectors."""

    _exchange: CompressedSimulatedExchange

    def begin(self, at: float, first: Callable[[], bool] | None = None) -> None:
        """See `Pull.begin`."""
        self._packed: list[tuple[int, list[np.ndarray], int]] = []
        super().begin(at, first)

    def write(self, model: Model) -> None:
        """Put what has come where it belongs."""
        super().write(model)
        for shard, arrays, length in self._packed:
            self._exchange.codec.read(shard, arrays, length, model)

    def _cost(self, node: ServerNode) -> tuple[float, int]:
        exchange = self._exchange
        if exchange.side.model is not None:
            return exchange.amount(node, exchange.modelled.answer_sizes(node.shard), self._vectors)
        sizes = [size for _, size in self._wanted_arrays(node)]
        sizes += [each.stop - each.start for each in self._plain(node)]
        return float(sum(array_bytes(size) for size in sizes)), len(sizes)

    def _collect(self, node: ServerNode) -> None:
        exchange = self._exchange
        for bucket in self._plain(node):
            values = node.values(exchange.layout.key(bucket, self._channel(bucket.vector)))
            self._answers.append((bucket, values[wire.HEADER_ELEMENTS :]))
        arrays = [
            node.stored(exchange.open(node, key, wire.HEADER_ELEMENTS + size)).copy()
            for key, size in self._wanted_arrays(node)
        ]
        if exchange.side.model is None:
            self._packed.append((node.shard, arrays, self._length(node)))

    def _plain(self, node: ServerNode) -> list[Bucket]:
        """The buckets of a server that travel as they are."""
        others = set(self._vectors) - {WEIGHTS}
        return [each for each in self._exchange.carried if each.vector in others and each.shard == node.shard]

    def _wanted_arrays(self, node: ServerNode) -> list[tuple[int, int]]:
        if self._exchange.side.model is not None:
            return []
        return self._exchange.codec.wanted(node.shard, self._length(node))

    def _length(self, node: ServerNode) -> int:
        return int(node.ledger.answer[self._exchange.rank])


def array_bytes(elements: int) -> float:
    """Bytes of so many float32 values as one push or pull."""
    return 4.0 * (wire.HEADER_ELEMENTS + elements) + config.SIMULATE_MESSAGE_BYTES
