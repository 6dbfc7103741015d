"""What the search finds and nobody has mended yet: schedules that end so count as known, and no others."""

import re

#: The end of which kinds of run, as a pattern → what is said about it → why.
KNOWN: list[tuple[str, str, str]] = []


def known(kind: str, error: str) -> bool:
    """Whether that is known of this kind."""
    return any(re.fullmatch(kinds, kind) and re.search(what, error) for kinds, what, _ in KNOWN)
