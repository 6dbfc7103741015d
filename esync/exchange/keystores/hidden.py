"""An exchange under way whose worker goes on meanwhile: a thread asks for the answer, and receives it."""

import numpy as np

from ...sparse import Sparse
from ..base import Model, Result
from .courier import Courier
from .kvstore_worker import KVStoreExchange
from .pending import PendingExchange


class Parcel:
    """A model that has been received and waits to be put into place; see `exchange.Model`.

    Args:
        weights: number of trained values.
        statistics: number of values that are averaged only.
    """

    def __init__(self, weights: int, statistics: int) -> None:
        self._vectors = np.empty(weights, np.float32), np.empty(statistics, np.float32)

    def write(self, statistics: bool, start: int, values: np.ndarray) -> None:
        """Keep a copy."""
        self._vectors[statistics][start : start + values.size] = values

    def add(self, step: Sparse) -> None:
        """See `exchange.Model`."""
        raise RuntimeError("sparse exchanges are not hidden")

    put = add

    def deliver(self, model: Model, statistics: bool) -> None:
        """Put it into place, with or without the statistics."""
        for which in (False, True) if statistics else (False,):
            if self._vectors[which].size:
                model.write(which, 0, self._vectors[which])


class HiddenExchange(PendingExchange):
    """The handle: done when the model has been received, so that `result` only has to put it into place."""

    def __init__(self, exchange: KVStoreExchange, model: Model, statistics: bool, begun: float, parcel: Parcel) -> None:
        super().__init__(exchange, parcel, statistics, begun)
        self._parcel, self._target = parcel, model
        self._delivered = False
        self._courier = Courier(self._receive, "the model")

    def done(self) -> bool:
        """Look without waiting."""
        return self._courier.back()

    def result(self) -> Result:
        """Put the model into place, or raise what the exchange has failed with."""
        self._courier.check()
        if not self._delivered:
            self._delivered = True
            self._parcel.deliver(self._target, self._statistics)
        assert self._result is not None
        return self._result

    def wait(self) -> Result:
        """Wait for the thread."""
        self._courier.wait()
        return self.result()

    def cancel(self) -> None:
        """This worker leaves: stop asking."""
        self._cancelled = True
        self._courier.wait()

    def _receive(self) -> None:
        self._poll()
        if not self._cancelled:
            self._take()
