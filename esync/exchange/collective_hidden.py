"""An exchange by a collective whose worker goes on meanwhile: a thread lets the values travel, and adds them up."""

import threading
from typing import TYPE_CHECKING

from ..handles import NotDoneError
from . import Model, Payload, Result
from .collective_pending import PendingCollective

if TYPE_CHECKING:
    from .collective_worker import CollectiveExchange


class HiddenCollective(PendingCollective):
    """The handle: done when the sum is there, so that `result` only has to put the model into place.

    The thread touches nothing that the worker computes with, and takes turns with the main thread where both talk to
    the others. What it fails with is raised by `result`.
    """

    def __init__(self, exchange: "CollectiveExchange", payload: Payload, model: Model) -> None:
        super().__init__(exchange, payload, model)
        self._there = threading.Event()
        self._cancelled = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._carry, name="exchange", daemon=True)
        self._thread.start()

    def done(self) -> bool:
        """Look without waiting, not even for the network."""
        return self._there.is_set()

    def result(self) -> Result:
        """Put the model into place, or raise what the exchange has failed with."""
        if not self._there.is_set():
            raise NotDoneError("the sum over all workers is not there yet")
        if self._error is not None:
            raise self._error
        return super().result()

    def wait(self) -> Result:
        """Wait for the thread, which says for what and gives up in time."""
        self._there.wait()
        return self.result()

    def cancel(self) -> None:
        """This worker leaves: talk to nobody any more."""
        self._cancelled = True
        self._thread.join()

    def _carry(self) -> None:
        try:
            self.travel(lambda: self._cancelled)
        except BaseException as error:
            self._error = error
        finally:
            self._there.set()
