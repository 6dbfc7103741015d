"""What is on its way in virtual time: a payload to a server, and an exchange until the servers have used it."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..exchange import Model, Result
from ..exchange.pending import FIRST_PAUSE, LONGEST_PAUSE, PAUSE_GROWTH
from ..handles import NotDoneError
from .servers import ServerNode

if TYPE_CHECKING:
    from .exchange import SimulatedExchange


@dataclass(eq=False)
class Delivery:
    """A payload with its message, or a message alone, on its way to a server."""

    exchange: "SimulatedExchange"
    node: ServerNode
    pushes: list[tuple[int, np.ndarray]]
    message: Any

    def handle(self) -> None:
        """The server has handled it."""
        self.node.take(self.pushes)
        self.node.say(self.message)
        self.exchange.side.changed(self.exchange.rank)


class PendingExchange:
    """The handle of an exchange."""

    def __init__(
        self, exchange: "SimulatedExchange", model: Model, statistics: bool, sequence: int, begun: float
    ) -> None:
        self._exchange, self._model, self._statistics = exchange, model, statistics
        self._sequence, self._begun = sequence, begun
        self._used = exchange.side.engine.event()
        self._result: Result | None = None

    def look(self) -> bool:
        """Whether all servers have dealt with this payload, or the run has failed; called when one of them has."""
        exchange = self._exchange
        for node in exchange.side.nodes:
            if not node.ledger.failure and node.ledger.acknowledged[exchange.rank] < self._sequence:
                return False
        engine = exchange.side.engine
        noticed = max(noticed_at(self._begun, engine.now, exchange.round_trip(node)) for node in exchange.side.nodes)
        engine.call_at(noticed, self._used.succeed)
        return True

    def done(self) -> bool:
        """Whether the servers have used the payload."""
        self._exchange.side.engine.settle()
        return bool(self._used.triggered)

    def result(self) -> Result:
        """Pull the model into place."""
        exchange = self._exchange
        if self._result is None:
            if not self.done():
                raise NotDoneError("the servers have not used this payload yet")
            exchange.check()
            wait = max(float(node.ledger.wait[exchange.rank]) for node in exchange.side.nodes)
            before = exchange.report(exchange.side.nodes[0], wait, 0.0)
            exchange.pull(exchange.channel, self._statistics, self._model)
            transfer = max(0.0, exchange.side.engine.now - self._begun - wait)
            self._result = replace(before, transfer=transfer)
        return self._result

    def wait(self) -> Result:
        """Wait for the other workers, then for the model."""
        self._exchange.side.engine.wait(self._used, f"the commits of the others (worker {self._exchange.rank})")
        return self.result()


def noticed_at(begun: float, used: float, round_trip: float) -> float:
    """When a worker that polls the status learns what happened at `used` (seconds; it has polled since `begun`)."""
    asked, pause = begun + round_trip / 2, FIRST_PAUSE
    while asked < used:
        if pause == LONGEST_PAUSE:
            step = pause + round_trip
            asked += max(1, int((used - asked) / step)) * step
        else:
            asked += pause + round_trip
            pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
    return asked + round_trip / 2
