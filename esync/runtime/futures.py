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

    def wait(self) -> T_co:
        """Wait until the operation is done, and return its result or raise the error with which it has failed."""
        ...


@dataclass(frozen=True)
class Completed(Generic[T]):
    """A handle of an operation that is already done, as blocking implementations return it."""

    value: T

    def done(self) -> bool:
        """Return True."""
        return True

    def wait(self) -> T:
        """Return the value at once."""
        return self.value


class Future(Generic[T]):
    """A handle that is completed once, with a value or an error.

    Another thread completes it, or a subclass overrides `_poll` and `_await`, for instance to read from
    a process.
    """

    def __init__(self) -> None:
        self._completed = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def complete(self, value: T) -> None:
        """Set the result."""
        self._value = value
        self._completed.set()

    def fail(self, error: BaseException) -> None:
        """Set the error with which the operation has failed; `wait` raises it."""
        self._error = error
        self._completed.set()

    def done(self) -> bool:
        """See `Handle.done`."""
        self._poll()
        return self._completed.is_set()

    def wait(self) -> T:
        """See `Handle.wait`."""
        self._await()
        self._poll()
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

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
        super().__init__()
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
