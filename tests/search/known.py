"""Failures that the search finds and nobody has mended yet; all others fail the tests."""

import re

#: Pattern of the kinds, pattern of the error, and why it happens.
KNOWN: list[tuple[str, str, str]] = [
    (
        "(hosts-)?switch",
        "no checkpoint is complete: worker 0 has those of round",
        "After a round that a checkpoint belongs to, commits are used at once: a worker that looks late is told a "
        "later round, writes no part of that one, and the servers take its next part as a sign that it has.",
    ),
]


def known(kind: str, error: str) -> bool:
    """Return whether this error is known of this kind."""
    return any(re.fullmatch(kinds, kind) and re.search(what, error) for kinds, what, _ in KNOWN)
