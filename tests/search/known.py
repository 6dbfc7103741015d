"""What the search finds and nobody has mended yet: schedules that end so count as known, and no others."""

import re

#: The end of which kinds of run, as a pattern → what is said about it → why.
KNOWN = [
    (
        r".*-elastic|async|private|ssp|sparse",
        r"--resume: no checkpoint is there in all its parts",
        "others write parts while there is no worker 0, or before it has its first, and delete what was whole",
    ),
]


def known(kind: str, error: str) -> bool:
    """Whether that is known of this kind."""
    return any(re.fullmatch(kinds, kind) and re.search(what, error) for kinds, what, _ in KNOWN)
