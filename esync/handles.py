"""What every seam gives back: *start something, get a handle, ask or wait*.

An exchange, a question to the state server, an evaluation: each is started and answered through a `Handle`, so that
blocking, delayed and simulated implementations look the same to an algorithm.
"""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Handle(Protocol[T_co]):
    """Something that was started and has, or will have, one result."""

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
    """The handle of something that is done already: what a blocking implementation returns."""

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
