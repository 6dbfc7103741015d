"""Handles of exchanges with parameter servers, and the model that a hidden one has received."""

from collections.abc import Callable, Collection, Mapping

import numpy as np

from ...runtime.futures import NotDoneError
from ..base import Flat, ModelSink, Result
from ..codecs.sparse import Sparse
from .status import Status
from .store import Store


class PendingExchange:
    """The handle of an exchange: done when all servers have used the payload.

    `result` then fetches the model, which does not depend on any other worker any more.

    Args:
        store: to the servers.
        sequence: number of the exchange.
        look: called with every status that is seen; raises what the exchange fails with.
        finish: given the servers' statuses, fetches the model and sums up how the exchange went.
    """

    def __init__(
        self,
        store: Store,
        sequence: int,
        look: Callable[[Status], None],
        finish: Callable[[list[Status]], Result],
    ) -> None:
        self._store, self._sequence = store, sequence
        self._look, self._finish = look, finish
        self._statuses: list[Status] | None = None
        self._result: Result | None = None

    def done(self) -> bool:
        """Look once; raises JobAbortedError when the run has failed meanwhile."""
        if self._statuses is None:
            self._statuses = self._store.acknowledged(self._sequence, self._look)
        return self._statuses is not None

    def result(self) -> Result:
        """Fetch the model into place."""
        if self._result is None and not self.done():
            raise NotDoneError("the servers have not used this payload yet")
        return self.wait()

    def wait(self) -> Result:
        """Wait for the other workers, then for the model."""
        if self._result is None:
            self._receive()
        assert self._result is not None
        return self._result

    def _receive(self) -> None:
        if self._statuses is None:
            self._statuses = self._store.await_acknowledged(self._sequence, self._look)
        self._result = self._finish(self._statuses)


class HiddenExchange(PendingExchange):
    """The handle where the worker goes on meanwhile: done when the model has been received.

    So `result` only has to put it into place.

    Args:
        store: as of `PendingExchange`, like the following three.
        sequence: number of the exchange.
        look: called with every status that is seen.
        finish: fetches the model to where it waits.
        deliver: puts it into place.
    """

    def __init__(
        self,
        store: Store,
        sequence: int,
        look: Callable[[Status], None],
        finish: Callable[[list[Status]], Result],
        deliver: Callable[[], None],
    ) -> None:
        super().__init__(store, sequence, look, finish)
        self._deliver: Callable[[], None] | None = deliver
        self._task = store.spawn(self._receive)

    def done(self) -> bool:
        """Look without waiting."""
        return self._task.done()

    def result(self) -> Result:
        """Put the model into place, or raise what the exchange has failed with."""
        if not self._task.done():
            raise NotDoneError("the model is not there yet")
        return self.wait()

    def wait(self) -> Result:
        """Wait for the model."""
        self._task.wait()
        if self._deliver is not None:
            self._deliver()
            self._deliver = None
        return super().wait()

    def cancel(self) -> None:
        """This worker leaves: stop asking."""
        self._task.cancel()


class ReceivedModel:
    """A model that has been received and waits to be put into place; see `exchange.ModelSink`.

    Args:
        sizes: name of each vector → number of its values.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.vectors = {name: Flat(np.empty(size, np.float32)) for name, size in sizes.items()}

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Keep a copy."""
        self.vectors[vector].write(start, values)

    def add(self, step: Sparse) -> None:
        """See `exchange.ModelSink`."""
        raise RuntimeError("sparse exchanges are not hidden")

    put = add

    def deliver(self, model: ModelSink, wanted: Collection[str]) -> None:
        """Put these vectors into place."""
        for name in wanted:
            if self.vectors[name].size:
                model.write(name, 0, self.vectors[name].values)
