"""Schema of a journal's head, checked before a job is restored from it.

The checksum only shows that the head is intact. It may have been written by another version of this
program, or with an editor.
"""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..coordination.records import Record
from .journal import DamagedJournalError
from .schema import Rank, Report, Workers


class Saved(BaseModel):
    """A saved part of a job; fields that other versions have added are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Mark(Saved):
    """State of a clock; see `lifecycle.PersistentClock.mark`."""

    boot: str
    time: float
    wall: float
    offset: float


class SavedCoordinator(Saved):
    """State of a coordinator; see `Coordinator.state`."""

    num_workers: Workers
    epsilon: float | None
    slowest_iterations: Annotated[int, Field(ge=1)]
    round: Annotated[int, Field(ge=1, alias="_round")]
    last_progress: Annotated[float | None, Field(alias="_last_progress")] = None
    absent: Annotated[list[Rank], Field(alias="_absent")] = []
    records: Annotated[list[Record], Field(alias="_records")]


class Head(Saved):
    """Head of a journal; see `Job._head`."""

    job: str
    run: str
    key: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    started: float
    clock: Mark
    coordinator: SavedCoordinator
    heard: list[float | None]
    reports: list[Report]
    ended: float | None
    reason: str
    slowest: Rank | None
    round: Annotated[int, Field(ge=1)]


def check_head(head: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a journal's head if it is valid.

    Args:
        head: the journal's head.
        name: name of the job whose journal it is.

    Raises:
        DamagedJournalError: it is invalid, or another job's; the message says why.
    """
    try:
        checked = Head.model_validate_json(json.dumps(head))
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(part) for part in first["loc"])
        raise DamagedJournalError(f"its head's {location} makes no sense: {first['msg']}") from None
    workers = checked.coordinator.num_workers
    ranks = [record.rank for record in checked.coordinator.records]
    if checked.job != name:
        raise DamagedJournalError(f"its head is that of job {checked.job[:80]!r}")
    if ranks != list(range(workers)) or len(checked.heard) != workers:
        raise DamagedJournalError(f"its head is not that of {workers} workers")
    reporters = [report.rank for report in checked.reports]
    if any(rank >= workers for rank in (*reporters, *checked.coordinator.absent)):
        raise DamagedJournalError("its head names ranks that the job does not have")
    return head
