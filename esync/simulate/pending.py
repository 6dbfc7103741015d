"""What is on its way in virtual time: a payload to a server, and an exchange until its worker has the new model."""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..exchange import ExchangeError, Model, Result
from ..exchange.keystores.pending import FIRST_PAUSE, LONGEST_PAUSE, PAUSE_GROWTH
from ..handles import NotDoneError
from .pulling import Pull
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
        self.exchange.side.changed(self.exchange.rank, self.node.time)


class PendingExchange:
    """The handle of an exchange.

    Args:
        exchange: of the worker.
        model: where the new one is put.
        vectors: names of those that come back.
        sequence: number of the exchange.
        begun: when it began.
        sent: when the payload left, and polling began.
    """

    def __init__(
        self,
        exchange: "SimulatedExchange",
        model: Model,
        vectors: Collection[str],
        sequence: int,
        begun: float,
        sent: float,
    ) -> None:
        self._exchange, self._model, self._vectors = exchange, model, vectors
        self._sequence, self._begun, self._sent = sequence, begun, sent
        self._noticed = math.inf  # when the worker learns that the servers have used its payload
        self._wake: Callable[[Any], None] | None = None  # of the worker, where it waits
        self._pull: Pull | None = None
        self._standing: dict[str, Any] = {}
        self._waited = 0.0
        self._error: ExchangeError | None = None
        self._result: Result | None = None

    def look(self, time: float) -> bool:
        """Whether all servers have dealt with this payload by `time`, or the run has failed.

        Called when one of them has. A worker that waits then asks for the model as soon as it has noticed.
        """
        exchange = self._exchange
        for node in exchange.side.nodes:
            if not node.ledger.failure and node.ledger.acknowledged[exchange.rank] < self._sequence:
                return False
        noticed = 0.0
        for node in exchange.side.nodes:
            at, polls = noticed_at(self._sent, time, exchange.round_trip(node), exchange.held(time))
            noticed = max(noticed, at)
            exchange.polled(node, polls)
        self._noticed = noticed
        if self._wake is not None:
            self._fetch(noticed)
        return True

    def done(self) -> bool:
        """Whether the servers have used the payload, as far as the worker knows."""
        engine = self._exchange.side.engine
        engine.settle()
        return engine.now >= self._noticed

    def result(self) -> Result:
        """Pull the model into place."""
        if self._result is None:
            if not self.done():
                raise NotDoneError("the servers have not used this payload yet")
            self.wait()
        assert self._result is not None
        return self._result

    def wait(self) -> Result:
        """Wait for the other workers, then for the model."""
        exchange, engine = self._exchange, self._exchange.side.engine
        if self._result is None:
            # No server can have used what reaches it later than now, so the clock may stay ahead of the events.
            self._wake = engine.waker(f"the commits of the others (worker {exchange.rank})")
            if self._noticed < math.inf:
                self._fetch(max(self._noticed, engine.now))
            engine.pause()
            self._finish(engine.now)
            assert self._result is not None
        return self._result

    def _finish(self, arrived: float) -> None:
        """Put the model, which arrived then, into place."""
        if self._error is not None:
            raise self._error
        assert self._pull is not None
        self._pull.write(self._model)
        transfer = max(0.0, arrived - self._begun - self._waited)
        self._result = Result(**self._standing, wait=self._waited, transfer=transfer)

    def _fetch(self, at: float) -> None:
        """Ask for the model at `at`, when the worker has noticed that its payload was used."""
        exchange = self._exchange
        assert self._wake is not None
        self._pull = exchange.pull(self._vectors, self._wake)
        self._pull.begin(at + exchange.held(at), self._look_again)

    def _look_again(self) -> bool:
        """The request has come to the first server: how things stand, and whether the model will be wanted."""
        exchange = self._exchange
        try:
            exchange.check()
        except ExchangeError as error:
            self._error = error
            assert self._wake is not None
            self._wake(None)
            return False
        nodes = exchange.side.nodes
        self._waited = max(float(node.ledger.wait[exchange.rank]) for node in nodes)
        self._standing = exchange.standing(nodes[0])
        return True


class HiddenExchange(PendingExchange):
    """The handle where the worker goes on meanwhile: the model is fetched as soon as the payload has been used."""

    def __init__(
        self,
        exchange: "SimulatedExchange",
        model: Model,
        vectors: Collection[str],
        sequence: int,
        begun: float,
        sent: float,
    ) -> None:
        super().__init__(exchange, model, vectors, sequence, begun, sent)
        self._arrived = exchange.side.engine.event()
        self._wake = self._has_arrived

    def done(self) -> bool:
        """Whether the model is there."""
        self._exchange.side.engine.settle()
        return bool(self._arrived.triggered)

    def wait(self) -> Result:
        """Wait for the model."""
        if self._result is None:
            exchange = self._exchange
            self._finish(exchange.side.engine.wait(self._arrived, f"the new model (worker {exchange.rank})"))
        assert self._result is not None
        return self._result

    def _has_arrived(self, _: Any) -> None:
        if not self._arrived.triggered:
            self._arrived.succeed(self._exchange.side.engine.time)


def noticed_at(begun: float, used: float, round_trip: float, held: float = 0.0) -> tuple[float, int]:
    """When a worker that polls the status learns what happened at `used`, and by how many polls.

    All in seconds; it has polled since `begun`, and each poll has left `held` later.
    """
    first, step = _polls(round_trip + held)
    begun += held / 2  # the way there takes held + round_trip / 2, of which _polls reckons with half of both
    passed = used - begun
    if passed <= first[-1]:
        index = bisect_left(first, passed)
        asked, polls = first[index], index + 1
    else:
        more = math.ceil((passed - first[-1]) / step)
        asked, polls = first[-1] + more * step, len(first) + more
    return max(begun + asked, used) + round_trip / 2, polls


@lru_cache(maxsize=1024)
def _polls(round_trip: float) -> tuple[list[float], float]:
    """When the polls reach the server, as long as their pauses grow, and the time between two of them afterwards."""
    asked, pause = [round_trip / 2], FIRST_PAUSE
    while pause < LONGEST_PAUSE:
        asked.append(asked[-1] + pause + round_trip)
        pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
    return asked, LONGEST_PAUSE + round_trip
