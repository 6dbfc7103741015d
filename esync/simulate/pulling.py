"""A pull in virtual time: requests to all servers, and their parts of the model on the way back."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import simpy

from ..exchange import Model, wire
from ..exchange.layout import Bucket
from .servers import ServerNode

if TYPE_CHECKING:
    from .exchange import SimulatedExchange


def pull(exchange: "SimulatedExchange", channel: int, statistics: bool, model: Model) -> None:
    """Ask every server for its part of the model, wait for it, and write it into `model`."""
    side, engine, sizes = exchange.side, exchange.side.engine, exchange.sizes
    plain = int(not statistics)
    engine.settle()
    arrivals: list[simpy.Event] = []
    answers: list[tuple[Bucket, np.ndarray]] = []

    def answering(node: ServerNode, size: float, messages: int, arrived: simpy.Event) -> Callable[[], None]:
        """What a server does when the request for its part of the model has come."""

        def hand_out() -> None:
            for bucket in exchange.layout.buckets:
                if bucket.shard == node.shard and (statistics or not bucket.statistics):
                    values = node.values(exchange.layout.key(bucket, channel))
                    answers.append((bucket, values[wire.HEADER_ELEMENTS :]))
            side.network.send(node.model.host, exchange.host, size, arrived.succeed, exchange.owner)

        return lambda: node.occupy(messages, size, hand_out)

    for node in side.nodes:
        arrived = engine.event()
        arrivals.append(arrived)
        size, messages = sizes.pushed[plain][node.shard], sizes.buckets[plain][node.shard]
        exchange.received += size
        engine.call_at(engine.now + exchange.round_trip(node) / 2, answering(node, size, messages, arrived))
    for node, arrived in zip(side.nodes, arrivals, strict=True):
        engine.wait(arrived, f"the model from server {node.shard}")
    for bucket, values in answers:
        model.write(bucket.statistics, bucket.start, values)
