"""An exchange under way whose worker goes on meanwhile: a thread asks for the answer, and receives it."""

from collections.abc import Collection, Mapping

import numpy as np

from ...sparse import Sparse
from ..base import Model, Result
from .courier import Courier
from .kvstore_worker import KVStoreExchange
from .pending import PendingExchange


class Parcel:
    """A model that has been received and waits to be put into place; see `exchange.Model`.

    Args:
        sizes: name of each vector → number of values.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._vectors = {name: np.empty(size, np.float32) for name, size in sizes.items()}

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Keep a copy."""
        self._vectors[vector][start : start + values.size] = values

    def add(self, step: Sparse) -> None:
        """See `exchange.Model`."""
        raise RuntimeError("sparse exchanges are not hidden")

    put = add

    def deliver(self, model: Model, vectors: Collection[str]) -> None:
        """Put these vectors into place."""
        for name, values in self._vectors.items():
            if values.size and name in vectors:
                model.write(name, 0, values)


class HiddenExchange(PendingExchange):
    """The handle: done when the model has been received, so that `result` only has to put it into place."""

    def __init__(
        self, exchange: KVStoreExchange, model: Model, vectors: Collection[str], begun: float, parcel: Parcel
    ) -> None:
        super().__init__(exchange, parcel, vectors, begun)
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
            self._parcel.deliver(self._target, self._vectors)
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
