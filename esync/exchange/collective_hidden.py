"""An exchange by a collective whose worker goes on meanwhile: a thread lets the values travel, and adds them up."""

from ..handles import NotDoneError
from .background import BackgroundTask
from .base import Model, Payload, Result
from .collective_pending import PendingCollective
from .collective_state import CollectiveState


class HiddenCollective(PendingCollective):
    """The handle: done when the sum is there, so that `result` only has to put the model into place.

    The thread takes turns with the main thread where both talk to the others.
    """

    def __init__(self, exchange: CollectiveState, payload: Payload, model: Model) -> None:
        super().__init__(exchange, payload, model)
        self._task = BackgroundTask(self.travel, super().cancel)

    def done(self) -> bool:
        """Look without waiting."""
        return self._task.done()

    def result(self) -> Result:
        """Put the model into place, or raise what the exchange has failed with."""
        if not self._task.done():
            raise NotDoneError("the sum over all workers is not there yet")
        self._task.wait()
        return super().result()

    def wait(self) -> Result:
        """Wait for the thread."""
        self._task.wait()
        return super().result()

    def cancel(self) -> None:
        """This worker leaves: talk to nobody any more."""
        self._task.cancel()
