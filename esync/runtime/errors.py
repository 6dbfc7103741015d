"""Errors that a user can do something about."""

import difflib
from collections.abc import Callable, Iterable


class ExpectedError(Exception):
    """Its message is all that a user needs: programs print it as one sentence, without a traceback, and exit with 1.

    Attributes:
        transient: another process in the place of this one may do better.
    """

    transient = False


class DeadlockError(ExpectedError):
    """All tasks wait, so nothing can happen any more; the message says which tasks, and for what."""


class AlgorithmResultError(ExpectedError):
    """A method of an algorithm has returned what cannot be used."""


def suggestion(name: object, known: Iterable[str], most: int = 3, shown: Callable[[str], str] = str) -> str:
    """Return a suggestion among the known names as the end of a message; "" if none is similar.

    Args:
        name: what was given.
        known: what could have been meant.
        most: how many names to suggest.
        shown: writes a name as the user would type it.
    """
    close = difflib.get_close_matches(str(name), known, n=most)
    return f" (did you mean {' or '.join(map(shown, close))}?)" if close else ""
