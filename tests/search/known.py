"""What the search finds and nobody has mended yet: schedules that end so count as known, and no others."""

import re

#: The end of which kinds of run, as a pattern → what is said about it → why.
KNOWN = [
    (
        r"(sync|fp16|2bit|topk|overlap)-elastic",
        r"only one of servers 0 and \d has used commits",
        "a worker that dies between two servers counts on those that its commit has reached",
    ),
    (
        r"async|private|ssp|async-elastic|private-elastic",
        r"--resume: no checkpoint is there in all its parts: worker 0 has none",
        "without rounds, others may have two parts before rank 0 has its first",
    ),
    (r"switch", r"no end after", "a worker that dies at a switch, between two servers, may never be replaced"),
]


def known(kind: str, error: str) -> bool:
    """Whether that is known of this kind."""
    return any(re.fullmatch(kinds, kind) and re.search(what, error) for kinds, what, _ in KNOWN)
