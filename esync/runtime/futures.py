"""Futures: start an operation, get a handle, then poll it or wait for it.

Exchanges, queries to the state server and evaluations all return a `Handle`, so that algorithms use
blocking, delayed and simulated implementations in the same way.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Handle(Protocol[T_co]):
    """An operation that was started and has, or will have, one result."""

    def done(self) -> bool:
        """Return whether the operation has succeeded or failed, without waiting."""
        ...

    def result(self) -> T_co:
        """Return the result, or raise the error with which the operation has failed.

        Raises:
            NotDoneError: the operation is not done yet.
        """
        ...

    def wait(self) -> T_co:
        """Wait until the operation is done, then return `result`."""
        ...


class NotDoneError(RuntimeError):
    """Raised by `Handle.result` if the operation is not done yet."""


@dataclass(frozen=True)
class Completed(Generic[T]):
    """A handle of an operation that is already done, as blocking implementations return it."""

    value: T

    def done(self) -> bool:
        """Return True."""
        return True

    def result(self) -> T:
        """Return the value."""
        return self.value

    def wait(self) -> T:
        """Return the value at once."""
        return self.value


class Future(Generic[T]):
    """A handle that is completed once, with a value or an error.

    Another thread completes it, or a subclass overrides `_poll` and `_await`, for instance to read from
    a process.

    Args:
        missing: name of the result in messages before it is done.
    """

    def __init__(self, missing: str) -> None:
        self._missing = missing
        self._completed = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def complete(self, value: T) -> None:
        """Set the result."""
        self._value = value
        self._completed.set()

    def fail(self, error: BaseException) -> None:
        """Set the error with which the operation has failed; `result` raises it."""
        self._error = error
        self._completed.set()

    def done(self) -> bool:
        """See `Handle.done`."""
        self._poll()
        return self._completed.is_set()

    def result(self) -> T:
        """See `Handle.result`."""
        if not self.done():
            raise NotDoneError(f"{self._missing} is not there yet")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def wait(self) -> T:
        """See `Handle.wait`."""
        self._await()
        return self.result()

    def _poll(self) -> None:
        """Complete this handle if its result is available without waiting. May be called again."""

    def _await(self) -> None:
        """Wait until this handle is completed; called even if it is."""
        self._completed.wait()


class BackgroundTask(Future[None]):
    """Runs a function in a separate thread.

    Args:
        work: the function, which must not use the arrays with which the worker computes. It announces
            and limits its own waits.
        cancel: makes the function return early.
    """

    def __init__(self, work: Callable[[], None], cancel: Callable[[], None]) -> None:
        super().__init__("the end of the work")
        self._work, self._cancel = work, cancel
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Cancel the work, and wait until it has ended."""
        self._cancel()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.fail(error)
        else:
            self.complete(None)
