"""A pull in virtual time: requests to all servers, and their parts of the model on the way back."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from ..exchange import Model
from ..exchange.protocol import wire
from ..exchange.protocol.layout import Bucket
from .servers import ServerNode

if TYPE_CHECKING:
    from .exchange import SimulatedExchange


class Pull:
    """One pull of a worker.

    Args:
        exchange: of the worker.
        channel: the set of keys of each vector.
        vectors: names of those that are pulled.
        wake: called from an event when everything is there.
    """

    def __init__(
        self,
        exchange: "SimulatedExchange",
        channel: Callable[[str], int],
        vectors: Collection[str],
        wake: Callable[[Any], None],
    ) -> None:
        self._exchange, self._channel, self._vectors, self._wake = exchange, channel, vectors, wake
        self._answers: list[tuple[Bucket, np.ndarray]] = []
        self._missing = 0
        self._first: Callable[[], bool] | None = None
        self._wanted = True

    def begin(self, at: float, first: Callable[[], bool] | None = None) -> None:
        """Send the requests; they leave at `at` and take the latency.

        `first` is called when the first server has got its one; False: the model is not wanted any more.
        """
        exchange = self._exchange
        self._first = first
        engine, network = exchange.side.engine, exchange.side.network
        for node in exchange.side.nodes:
            self._missing += 1
            size, messages = self._cost(node)
            exchange.received += size
            exchange.say_bytes(node, messages * exchange.sizes.question)
            arrives = at + network.latency(exchange.host, node.model.host)
            engine.call_at(arrives, self._requested, node, size, messages)

    def write(self, model: Model) -> None:
        """Put what has come where it belongs."""
        for bucket, values in self._answers:
            model.write(bucket.vector, bucket.start, values)

    def _cost(self, node: ServerNode) -> tuple[float, int]:
        """Bytes and messages that come from a server."""
        return self._exchange.sizes.amount(node.shard, self._vectors)

    def _requested(self, node: ServerNode, size: float, messages: int) -> None:
        first, self._first = self._first, None
        if first is not None:
            self._wanted = first()
        if self._wanted:
            node.occupy(messages, size, lambda: self._hand_out(node, size))

    def _hand_out(self, node: ServerNode, size: float) -> None:
        exchange = self._exchange
        self._collect(node)
        exchange.side.network.send(node.model.host, exchange.host, size, self._arrived, exchange.owner, node.time)

    def _collect(self, node: ServerNode) -> None:
        """Keep what the server hands out now."""
        exchange = self._exchange
        for bucket in exchange.carried:
            if bucket.shard == node.shard and bucket.vector in self._vectors:
                values = node.values(exchange.layout.key(bucket, self._channel(bucket.vector)))
                self._answers.append((bucket, values[wire.HEADER_ELEMENTS :]))

    def _arrived(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._wake(None)
