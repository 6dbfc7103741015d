"""Futures: *start an operation, get a handle, poll it or wait*.

An exchange, a question to the state server, an evaluation: each is started and answered through a
`Handle`, so that blocking, delayed and simulated implementations look the same to an algorithm.
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
        """Tell, without waiting, whether the result is there (or the failure that `result` would raise)."""
        ...

    def result(self) -> T_co:
        """Return the result. Raises `NotDoneError` while there is none, or the error that the operation ended with."""
        ...

    def wait(self) -> T_co:
        """Wait until it is done, then return `result`."""
        ...


class NotDoneError(RuntimeError):
    """`Handle.result` was called before the handle was done."""


@dataclass(frozen=True)
class Completed(Generic[T]):
    """A handle of an operation that is done already, as a blocking implementation returns it."""

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
    """A handle that is completed, once, by whoever knows the result: with a value, or with an error.

    Completed by another thread it is used as it is. Where looking or waiting takes something else,
    such as reading from a process, a subclass does that in `_look` and `_await`.

    Args:
        missing: what is not there before it is done, for messages.
    """

    def __init__(self, missing: str) -> None:
        self._missing = missing
        self._completed = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def complete(self, value: T) -> None:
        """Take the result."""
        self._value = value
        self._completed.set()

    def fail(self, error: BaseException) -> None:
        """Take the error that the operation has ended with; `result` raises it."""
        self._error = error
        self._completed.set()

    def done(self) -> bool:
        """See `Handle`."""
        self._look()
        return self._completed.is_set()

    def result(self) -> T:
        """See `Handle`."""
        if not self.done():
            raise NotDoneError(f"{self._missing} is not there yet")
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def wait(self) -> T:
        """See `Handle`."""
        self._await()
        return self.result()

    def _look(self) -> None:
        """Complete this handle if that is possible without waiting; called even if it is completed."""

    def _await(self) -> None:
        """Wait until this handle is completed; called even if it is."""
        self._completed.wait()


class BackgroundTask(Future[None]):
    """Does one piece of work in a thread of its own.

    Args:
        work: touches nothing that the worker computes with; says itself what it waits for, and
            gives up in time.
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
