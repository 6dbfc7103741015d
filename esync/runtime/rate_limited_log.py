"""Complaints that anybody can cause by sending something: they must not fill the log."""

import math
import time
from collections.abc import Callable

#: Seconds between two complaints.
EVERY = 10.0


class RateLimit:
    """Admits so many lines in a while, and counts the others.

    Args:
        lines: how many.
        seconds: from the first of them until as many more may pass.
    """

    def __init__(self, lines: int, seconds: float) -> None:
        self._lines, self._seconds = lines, seconds
        self._since, self._seen = -math.inf, 0

    def admit(self, now: float) -> int | None:
        """Return how many lines were left out before this one, or None where it is left out itself."""
        left_out = 0
        if now - self._since >= self._seconds:
            left_out = max(0, self._seen - self._lines)
            self._since, self._seen = now, 0
        self._seen += 1
        return left_out if self._seen <= self._lines else None


class Rarely:
    """Passes on a text at most once in a while, and says how many were left out before it.

    Args:
        say: takes the text.
        every: seconds.
    """

    def __init__(self, say: Callable[[str], None], every: float = EVERY) -> None:
        self._say, self._limit = say, RateLimit(1, every)

    def __call__(self, text: str) -> None:
        """Pass it on, or count it."""
        left_out = self._limit.admit(time.monotonic())
        if left_out is not None:
            self._say(f"{text} (and {left_out} more of this kind before)" if left_out else text)
