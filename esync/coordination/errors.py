"""Messages that the coordinator refuses, and the checks of single values that they fail."""

import math


class RefusedError(ValueError):
    """A message was refused and has changed nothing. The text says what was expected."""


class InvalidError(RefusedError):
    """The message makes no sense at any time: an unknown rank, a value out of range."""


class ConflictError(RefusedError):
    """The message does not fit what the job is doing now: another round, no job, another job.

    `retry_after` is the time in seconds after which the same message may be welcome, or None if it never will be.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def count(name: str, value: int) -> int:
    """Return a number that counts something. Raises InvalidError below 0."""
    if value < 0:
        raise InvalidError(f"{name} must not be negative, but is {value}")
    return value


def seconds(name: str, value: float) -> float:
    """Return a length of time. Raises InvalidError where it is negative or not finite."""
    if not 0 <= value < math.inf:
        raise InvalidError(f"{name} must be a finite number of seconds, 0 or more, but is {value}")
    return value
