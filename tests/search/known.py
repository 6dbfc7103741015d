"""Failures that the search finds and nobody has mended yet; all others fail the tests."""

import re

#: Pattern of the kinds, pattern of the error, and why it happens.
KNOWN: list[tuple[str, str, str]] = []


def known(kind: str, error: str) -> bool:
    """Return whether this error is known of this kind."""
    return any(re.fullmatch(kinds, kind) and re.search(what, error) for kinds, what, _ in KNOWN)
