"""What the search finds and nobody has mended yet: schedules that end so count as known, and no others."""

import re

#: The end of which kinds of run, as a pattern → what is said about it → why.
KNOWN: list[tuple[str, str, str]] = [
    (
        r"switch",
        r"only one of servers 0 and \d has used commits",
        "a worker dies between two servers with a commit that is used at once, right before a switch to rounds: its "
        "replacement does not send that one again",
    ),
]


def known(kind: str, error: str) -> bool:
    """Whether that is known of this kind."""
    return any(re.fullmatch(kinds, kind) and re.search(what, error) for kinds, what, _ in KNOWN)
