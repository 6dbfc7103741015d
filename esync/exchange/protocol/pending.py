"""Handles of exchanges with parameter servers, and the model that an overlapped exchange receives."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ..base import Flat, ModelSink, Result
from ..codecs.sparse import Sparse
from .status import Status
from .store import Store


@dataclass(eq=False)
class PendingExchange:
    """The handle of an exchange, which is done when all servers have used the payload.

    `result` then fetches the model, which takes no more waiting for other workers.

    Args:
        store: connection to the servers.
        sequence: number of the exchange.
        check: called with every status that is read; raises if the exchange has failed.
        finish: fetches the model, given the servers' statuses, and returns the result.
    """

    store: Store
    sequence: int
    check: Callable[[Status], None]
    finish: Callable[[list[Status]], Result]

    def __post_init__(self) -> None:
        self._statuses: list[Status] | None = None
        self._result: Result | None = None

    def done(self) -> bool:
        """Return whether all servers have used the payload, without waiting.

        Raises:
            JobAbortedError: the run has failed.
        """
        if self._statuses is None:
            self._statuses = self.store.acknowledged(self.sequence, self.check)
        return self._statuses is not None

    def wait(self) -> Result:
        """Wait for the servers, fetch the model, and return the result."""
        if self._result is None:
            self._receive()
        assert self._result is not None
        return self._result

    def _receive(self) -> None:
        if self._statuses is None:
            self._statuses = self.store.await_acknowledged(self.sequence, self.check)
        self._result = self.finish(self._statuses)


@dataclass(eq=False)
class OverlappedExchange(PendingExchange):
    """The handle of an exchange during which the worker continues to train.

    It is done when the model has been received; `result` then only delivers it.

    Args:
        deliver: copies the received model to the worker's.
    """

    deliver: Callable[[], None] | None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._task = self.store.spawn(self._receive)

    def done(self) -> bool:
        """Return whether the model has been received, without waiting."""
        return self._task.done()

    def wait(self) -> Result:
        """Wait for the model, deliver it, and return the result."""
        self._task.wait()
        if self.deliver is not None:
            self.deliver()
            self.deliver = None
        return super().wait()

    def cancel(self) -> None:
        """Stop polling the servers, because this worker leaves."""
        self._task.cancel()


class ReceivedModel:
    """A model that has been received but not delivered yet; implements `exchange.ModelSink`.

    Args:
        sizes: name of each vector → number of its values.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.vectors = {name: Flat(np.empty(size, np.float32)) for name, size in sizes.items()}

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Keep a copy of the values."""
        self.vectors[vector].write(start, values)

    def add(self, step: Sparse) -> None:
        """See `exchange.ModelSink`."""
        raise RuntimeError("sparse exchanges are not overlapped with training")

    put = add

    def deliver(self, model: ModelSink, names: Collection[str]) -> None:
        """Write these vectors to a model."""
        for name in names:
            if self.vectors[name].size:
                model.write(name, 0, self.vectors[name].values)
