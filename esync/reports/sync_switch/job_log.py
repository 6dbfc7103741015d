"""The published job logs (bsp_job.txt, asp_job.txt): when each segment of a run began and ended, and at which step."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

_NAME = re.compile(r"Job name:\s*(?P<name>[^,\n]*),\s*SGD:\s*(?P<kind>BSP|ASP)")
_START = re.compile(r"Started training at:\s*(?P<when>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)")
_END = re.compile(
    r"Ended training at:\s*(?P<when>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?),\s*(?P<steps>\d+) steps"
    r"(?:\s*Final loss:\s*(?P<loss>[-+\w.]*?)(?=Job name|\s|$))?"
)

#: Seconds that a row may lie outside of its segment: the clocks are those of several machines.
SLACK = 60.0


@dataclass(frozen=True)
class Segment:
    """One segment that has come to its end. Times in seconds since 1970, steps as global steps."""

    name: str
    kind: str  # BSP or ASP
    started: float
    ended: float
    steps: int


def read_job_log(path: Path) -> list[Segment]:
    """The segments of a log; blocks may be glued to one another, and those without an end (crashed) are left out."""
    text = path.read_text(encoding="utf-8", errors="replace")
    heads = list(_NAME.finditer(text))
    segments = []
    for head, stop in zip(heads, [*(head.start() for head in heads[1:]), len(text)], strict=True):
        start, end = _START.search(text, head.end(), stop), _END.search(text, head.end(), stop)
        if start and end:
            began, ended = _seconds(start["when"]), _seconds(end["when"])
            segments.append(Segment(head["name"].strip(), head["kind"], began, ended, int(end["steps"])))
    return segments


def segments_between(segments: Iterable[Segment], first: float, last: float) -> Sequence[Segment]:
    """The segments of the run whose rows lie between these times; empty where the log does not tell them apart."""
    inside = sorted(
        (each for each in segments if each.started >= first - SLACK * 3 and each.ended <= last + SLACK * 3),
        key=lambda each: each.started,
    )
    steps_ascend = all(one.steps < other.steps and one.ended <= other.started for one, other in pairwise(inside))
    if not inside or not steps_ascend or inside[0].started > first + SLACK or inside[-1].ended < last - SLACK:
        return ()
    return inside


def _seconds(when: str) -> float:
    """The machines' clocks ran in UTC."""
    return datetime.fromisoformat(when).replace(tzinfo=timezone.utc).timestamp()
