"""Parameter servers of a modelled cluster: the real ones (`protocol.parameter_server`), fed in virtual time.

Messages reach a server through the modelled network and are handled one after the other, each for
as long as the model of the server says.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import config
from ..exchange.protocol import wire
from ..exchange.protocol.endpoint import Endpoint
from ..exchange.protocol.layout import WEIGHTS, Layout
from ..exchange.protocol.round_state import RoundState
from .engine import SimulationEngine

#: One push: key, and the array as it goes over the wire.
Push = tuple[int, np.ndarray]


@dataclass(frozen=True)
class ServerModel:
    """Costs of a parameter server.

    Attributes:
        host: where it runs.
        message_time: seconds for every message (a push, a pull, a commit), whatever its size.
        throughput: bytes per second that it adds up and hands out; the network comes on top.
    """

    host: str
    message_time: float = config.SIMULATE_MESSAGE_TIME
    throughput: float = math.inf

    def cost(self, messages: int, size: float) -> float:
        """Return the seconds to handle that many messages of that many bytes in all."""
        return messages * self.message_time + size / self.throughput


class ServerNode:
    """One server: its end of the protocol, what it keeps for each key, and when it is free.

    Args:
        engine: whose time.
        model: what it costs.
        shard: its number; the first one decides when the run ends.

    Attributes:
        endpoint: where commands go; pushes go through `take`.
    """

    def __init__(self, engine: SimulationEngine, model: ServerModel, shard: int) -> None:
        self.model, self.shard = model, shard
        self.endpoint = Endpoint(shard, lambda: self.time)
        self._engine = engine
        self._stored: dict[int, np.ndarray] = {}
        self._copies: dict[int, tuple[int, np.ndarray]] = {}
        self._free = 0.0
        self._handling: float | None = None

    @property
    def round_state(self) -> RoundState:
        """Its round state; there is one once a worker has sent its handshake."""
        return self.endpoint.server.round_state

    @property
    def time(self) -> float:
        """The server's present: when it will be done with the messages that it is looked at for."""
        return self._engine.now if self._handling is None else self._handling

    def occupy(self, messages: int, size: float, then: Callable[[], None]) -> None:
        """Handle messages that have just arrived, after those before them.

        What they do, `then`, is done right away with the server's clock where it will be after
        them: whatever reaches the server later finds it done, as it would in the order of time.
        """
        self._free = self._handling = max(self._free, self._engine.now) + self.model.cost(messages, size)
        try:
            then()
        finally:
            self._handling = None

    def take(self, pushes: Iterable[Push]) -> None:
        """What has been handled: as ps-lite does it, the first array of a key is kept without asking."""
        for key, values in pushes:
            if key in self._stored:
                self.endpoint.push(key, values, self._stored[key])
            else:
                self._stored[key] = values.copy()

    def copy(self, key: int, shared: bool) -> np.ndarray:
        """Return what a pull of this key is answered with, header included: a copy, because transfers take time.

        Args:
            key: which array.
            shared: whether it only changes with the version of the weights: all who pull the same
                version get the same copy then, which is not to be changed.
        """
        if not shared:
            return self._stored[key].copy()
        version, copy = self._copies.get(key, (-1, None))
        if copy is None or version != self.round_state.version:
            copy = self._stored[key].copy()
            self._copies[key] = (self.round_state.version, copy)
        return copy


def message_bytes(slots: int, scalars: Collection[str] = ()) -> float:
    """Return the bytes of a commit or another message, which is as large as the status.

    Args:
        slots: number of workers.
        scalars: names of those that messages have beside the built-in ones.
    """
    return 4.0 * wire.message_elements(slots, scalars) + config.SIMULATE_MESSAGE_BYTES


@dataclass(frozen=True)
class Sizes:
    """How much goes over the wire in one exchange, by the real protocol, to or from each server.

    Attributes:
        vectors: shard → name of each vector → bytes and messages of its buckets.
        message: bytes of a commit or another message, which is as large as the status.
        question: bytes of the request for the status, or for a bucket.
    """

    vectors: Sequence[Mapping[str, tuple[float, int]]]
    message: float
    question: float = config.SIMULATE_MESSAGE_BYTES

    @classmethod
    def of(cls, layout: Layout, slots: int) -> "Sizes":
        """Count them."""
        vectors = [dict.fromkeys(layout.sizes, (0.0, 0)) for _ in range(layout.servers)]
        for bucket in layout.buckets:
            size, messages = vectors[bucket.shard][bucket.vector]
            size += 4 * (wire.HEADER_ELEMENTS + bucket.stop - bucket.start) + config.SIMULATE_MESSAGE_BYTES
            vectors[bucket.shard][bucket.vector] = size, messages + 1
        return cls(vectors, message_bytes(slots))

    def amount(self, shard: int, vectors: Collection[str] | None = None) -> tuple[float, int]:
        """Return the bytes and messages of these vectors, or of all, to or from a server."""
        size, messages = 0.0, 0
        for name, (more, further) in self.vectors[shard].items():
            if vectors is None or name in vectors:
                size, messages = size + more, messages + further
        return size, messages


def modelled(model: Mapping[str, int] | None, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Return the sizes of the vectors that go over the wire, where a model stands for another one (None: it does not).

    A vector that is not known of the other model has as many values as its weights.
    """
    return sizes if model is None else {name: model.get(name, model[WEIGHTS]) for name in sizes}
