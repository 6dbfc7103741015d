"""Complaints that anybody can cause by sending something: they must not fill the log."""

import time
from collections.abc import Callable

#: Seconds between two complaints.
EVERY = 10.0


class Rarely:
    """Passes on a text at most once in a while, and says how many were left out before it.

    Args:
        say: takes the text.
        every: seconds.
    """

    def __init__(self, say: Callable[[str], None], every: float = EVERY) -> None:
        self._say, self._every = say, every
        self._said = -every
        self._left_out = 0

    def __call__(self, text: str) -> None:
        """Pass it on, or count it."""
        now = time.monotonic()
        if now - self._said < self._every:
            self._left_out += 1
            return
        self._say(f"{text} (and {self._left_out} more of this kind before)" if self._left_out else text)
        self._said, self._left_out = now, 0
