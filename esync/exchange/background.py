"""A thread that waits for the network in the place of a worker that goes on meanwhile."""

import threading
from collections.abc import Callable


class BackgroundTask:
    """Does one piece of work in a thread of its own; see `protocol.store.Task`.

    Args:
        work: touches nothing that the worker computes with.
        cancel: makes the work end early; None: it cannot.
    """

    def __init__(self, work: Callable[[], None], cancel: Callable[[], None] | None = None) -> None:
        self._work, self._cancel = work, cancel
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self._thread.start()

    def done(self) -> bool:
        """Tell whether the work is done, or has failed; looks without waiting, not even for the network."""
        return self._over.is_set()

    def wait(self) -> None:
        """Wait for the end of the work, which itself says for what and gives up in time; raise what it failed with."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """End the work, and wait until it has ended."""
        if self._cancel is not None:
            self._cancel()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._over.set()
