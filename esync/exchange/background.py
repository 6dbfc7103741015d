"""A thread that waits for the network in the place of a worker that goes on meanwhile."""

import threading
from collections.abc import Callable

from ..runtime.futures import Future


class BackgroundTask(Future[None]):
    """Does one piece of work in a thread of its own; see `protocol.store.Task`.

    Args:
        work: touches nothing that the worker computes with; says itself what it waits for, and gives up in time.
        cancel: makes the work end early.
    """

    def __init__(self, work: Callable[[], None], cancel: Callable[[], None]) -> None:
        super().__init__("the end of the work")
        self._work, self._cancel = work, cancel
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """End the work, and wait until it has ended."""
        self._cancel()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.fail(error)
        else:
            self.complete(None)
