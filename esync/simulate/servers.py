"""Parameter servers of a modelled cluster: the real ones, with messages in virtual time.

Messages reach a server (`protocol.parameter_server`) through the modelled network and are handled
one after the other, each in the time given by the server's model.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from .. import config
from ..exchange.protocol import wire
from ..exchange.protocol.endpoint import Endpoint
from ..exchange.protocol.layout import WEIGHTS, Layout
from ..exchange.protocol.round_state import RoundState
from .engine import SimulationEngine

#: One push: the key, and the array as it is sent.
Push = tuple[int, np.ndarray]


@dataclass(frozen=True)
class ServerModel:
    """Costs of a parameter server.

    Attributes:
        host: where it runs.
        message_time: seconds for every message (a push, a pull, a commit), whatever its size.
        throughput: bytes per second that it sums and sends, in addition to the network's time.
    """

    host: str
    message_time: float = config.SIMULATE_MESSAGE_TIME
    throughput: float = math.inf

    def cost(self, messages: int, size: float) -> float:
        """Return the seconds to handle a number of messages with so many bytes in all."""
        return messages * self.message_time + size / self.throughput


class ServerNode:
    """A server: its end of the protocol, its stored arrays, and the queue of its messages.

    Args:
        engine: the simulation's engine.
        model: its costs.
        shard: its number; the first server decides when the run ends.

    Attributes:
        endpoint: handles commands; pushes are passed to `take`.
        busy: seconds that it has spent on messages.
    """

    def __init__(self, engine: SimulationEngine, model: ServerModel, shard: int) -> None:
        self.model, self.shard = model, shard
        self.endpoint = Endpoint(shard, lambda: self.time)
        self._engine = engine
        self._stored: dict[int, np.ndarray] = {}
        self._copies: dict[int, tuple[int, np.ndarray]] = {}
        self._free = self.busy = 0.0
        self._handling: float | None = None

    @property
    def round_state(self) -> RoundState:
        """Its round state, which exists once a worker has sent its handshake."""
        return self.endpoint.server.round_state

    @property
    def time(self) -> float:
        """The server's time: while it handles messages, the time at which it finishes them."""
        return self._engine.now if self._handling is None else self._handling

    def occupy(self, messages: int, size: float, effect: Callable[[], None]) -> None:
        """Queue messages that have just arrived, and call `effect` to handle them.

        `effect` is called at once, with the server's clock set to the time at which the messages are
        handled. Since messages are handled in order, later ones cannot notice the difference.
        """
        cost = self.model.cost(messages, size)
        self.busy += cost
        self._free = self._handling = max(self._free, self._engine.now) + cost
        try:
            effect()
        finally:
            self._handling = None

    def receive(self, pushes: Iterable[Push]) -> None:
        """Store pushed arrays.

        As in ps-lite, the first array of a key is stored without calling the server's updater.
        """
        for key, values in pushes:
            if key in self._stored:
                self.endpoint.push(key, values, self._stored[key])
            else:
                self._stored[key] = values.copy()

    def copy(self, key: int, shared: bool) -> np.ndarray:
        """Return a copy of the array of a key, including its header, to answer a pull.

        Args:
            key: the array's key.
            shared: whether the array changes only with the version of the weights. All pulls of one
                version then return the same copy, which must not be modified.
        """
        if not shared:
            return self._stored[key].copy()
        version, copy = self._copies.get(key, (-1, None))
        if copy is None or version != self.round_state.version:
            copy = self._stored[key].copy()
            self._copies[key] = (self.round_state.version, copy)
        return copy


def message_bytes(slots: int, scalars: Collection[str] = (), per_host: int = 1) -> float:
    """Return the bytes of a commit or another message; all are as large as the status.

    Args:
        slots: number of workers.
        scalars: names of the scalars that messages have beside the built-in ones.
        per_host: largest number of workers on a host that exchange as one, in one message.
    """
    return 4.0 * wire.message_elements(slots, scalars, per_host) + config.SIMULATE_MESSAGE_BYTES


def model_amount(layout: Layout) -> tuple[float, int]:
    """Return bytes and messages of a whole model on its way to, or from, a single server."""
    buckets = layout.buckets
    elements = sum(wire.HEADER_ELEMENTS + bucket.stop - bucket.start for bucket in buckets)
    return 4.0 * elements + len(buckets) * config.SIMULATE_MESSAGE_BYTES, len(buckets)


def modelled(model: Mapping[str, int] | None, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Return the sizes of the vectors that go over the wire.

    With a model, each vector stands for one of that model's size; without, it has its own.

    A vector that the model does not have is as large as the model's weights.
    """
    return sizes if model is None else {name: model.get(name, model[WEIGHTS]) for name in sizes}
