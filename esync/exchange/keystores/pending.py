"""An exchange under way: polls the status of one server after the other, then pulls the model."""

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from ...handles import NotDoneError
from ..base import Model, Result

if TYPE_CHECKING:
    from .kvstore_worker import KVStoreExchange

#: Seconds between two looks at the status: the first pause, its growth, the longest.
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 0.0005, 1.5, 0.01


class PendingExchange:
    """The handle of an exchange: polls the status of one server after the other, then pulls the model.

    It is done when all servers have used the payload; `result` pulls the model, which does not depend on any other
    worker any more. `hidden.HiddenExchange` does the same in the background.
    """

    def __init__(self, exchange: "KVStoreExchange", model: Model, vectors: Collection[str], begun: float) -> None:
        self._exchange = exchange
        self._model = model
        self._vectors = vectors
        self._sequence = exchange.line.sequence
        self._begun = begun
        self._statuses: list[Any] = []  # of the servers that are done, in order
        self._result: Result | None = None
        self._cancelled = False

    def done(self) -> bool:
        """Look once; raises JobAbortedError when the run has failed meanwhile."""
        return self._look()

    def _look(self) -> bool:
        line = self._exchange.line
        while len(self._statuses) < line.servers:
            self._latest = line.status(len(self._statuses))
            if self._latest["acknowledged"][line.rank] < self._sequence:
                return False
            self._statuses.append(self._latest)
        return True

    def result(self) -> Result:
        """Pull the model into place."""
        if self._result is None:
            if not self.done():
                raise NotDoneError("the servers have not used this payload yet")
            self._take()
        assert self._result is not None
        return self._result

    def wait(self) -> Result:
        """Poll until `result` is there."""
        self._poll()
        return self.result()

    def _poll(self) -> None:
        """Until the servers have used the payload, with short pauses, growing while nothing happens."""
        pause = FIRST_PAUSE
        with self._exchange.line.patience("the other workers' commits at", "") as wait:
            while not (self._look() or self._cancelled):
                wait.what = f"the commit of {self._missing()}"
                wait.check()
                self._exchange.heartbeat()
                time.sleep(pause)
                pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)

    def _take(self) -> None:
        """Pull the model, and sum up how it went."""
        self._exchange.pull(self._model, self._vectors)
        wait = max(float(status["wait"][self._exchange.rank]) for status in self._statuses)
        transfer = max(0.0, time.perf_counter() - self._begun - wait)
        self._result = self._exchange.report(self._statuses, wait, transfer)

    def _missing(self) -> str:
        """Who has not committed in this round, for the user."""
        status = self._latest
        late = np.flatnonzero((status["member"] != 0) & (status["apart"] == 0) & (status["committed"] == 0)).tolist()
        return f"worker {', '.join(map(str, late))}" if late else "all workers to be used by the server"
