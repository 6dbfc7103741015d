"""Errors that a user can do something about."""

import difflib
from collections.abc import Callable, Iterable, Sequence


class ExpectedError(Exception):
    """An error whose message is all that a user needs.

    Programs print it as one sentence, without a traceback, and exit with its exit code.

    Attributes:
        transient: whether a replacement of this process may succeed.
        consequence: whether it is the consequence of another process's failure.
        exit_code: 1 for failures, 2 for invalid usage.
    """

    transient = False
    consequence = False
    exit_code = 1


class DeadlockError(ExpectedError):
    """Raised when all tasks wait; the message lists them and the events that they wait for."""


class AlgorithmResultError(ExpectedError):
    """Raised when a method of an algorithm has returned an invalid value."""


class EvaluationError(ExpectedError):
    """Raised when evaluations fail, or the evaluating process is not started again."""


def enumeration(names: Sequence[object], limit: int) -> str:
    """Return names separated by commas; if there are more than `limit`, the first ones and the number of the others."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(str, names[:limit])) + more


def suggestion(name: object, names: Iterable[str], limit: int = 3, shown: Callable[[str], str] = str) -> str:
    """Return a suggestion among the known names as the end of a message; "" if none is similar.

    Args:
        name: the name that was given.
        names: the valid names.
        limit: largest number of names to suggest.
        shown: returns a name as the user would type it.
    """
    close = difflib.get_close_matches(str(name), names, n=limit)
    return f" (did you mean {' or '.join(map(shown, close))}?)" if close else ""
