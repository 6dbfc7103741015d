"""A thread that waits for the network in the place of a worker that goes on meanwhile."""

import threading
from collections.abc import Callable

from ...handles import NotDoneError


class Courier:
    """Does one piece of work in a thread of its own.

    Args:
        work: touches nothing that the worker computes with.
        missing: what is not there before the work is done, for the user.
    """

    def __init__(self, work: Callable[[], None], missing: str) -> None:
        self._work, self._missing = work, missing
        self._back = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self._thread.start()

    def back(self) -> bool:
        """Whether the work is done, or has failed; looks without waiting, not even for the network."""
        return self._back.is_set()

    def check(self) -> None:
        """Raise what the work has failed with, or NotDoneError where it is not done yet."""
        if not self._back.is_set():
            raise NotDoneError(f"{self._missing} is not there yet")
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Wait for the end of the work, which itself says for what and gives up in time."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._back.set()
