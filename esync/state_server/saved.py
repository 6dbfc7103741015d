"""Schema of a journal's head, checked before a job is made from it.

Its checksum shows that it is intact, not who wrote it: that may have been another version of this
program, or somebody with an editor.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .. import config
from .journal import DamagedJournalError
from .schema import Rank, Report, Workers

Moment = Annotated[float, Field(allow_inf_nan=False)]


class Saved(BaseModel):
    """A saved part of a job; fields that other versions have added are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class Mark(Saved):
    """State of a clock; see `lifecycle.PersistentClock.mark`."""

    boot: str
    time: Moment
    wall: Moment
    offset: Moment


class SavedRecord(Saved):
    """Record of a worker; see `records.Record`."""

    rank: Rank
    round: int = 1
    asked: int = -1
    ready: bool = False
    capability: Moment = 0.0
    measured: bool = False
    finished: Moment = 0.0
    te: Moment = 0.0
    shortest: Moment = 0.0
    jitter: Moment = 0.0
    round_trip: Moment = 0.0
    round_trip_jitter: Moment = 0.0
    held_up: Moment = 0.0


class SavedCoordinator(Saved):
    """State of a coordinator; see `Coordinator.state`."""

    num_workers: Workers
    epsilon: float | None
    slowest_iterations: Annotated[int, Field(ge=1)]
    smoothing: Annotated[float, Field(gt=0, le=1, alias="_smoothing")] = config.CAPABILITY_SMOOTHING
    round: Annotated[int, Field(ge=1, alias="_round")]
    last_progress: Annotated[Moment | None, Field(alias="_last_progress")] = None
    absent: Annotated[list[Rank], Field(alias="_absent")] = []
    records: Annotated[list[SavedRecord], Field(alias="_records")]


class Head(Saved):
    """Head of a journal; see `Job._head`."""

    job: str
    run: str
    key: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    started: Moment
    clock: Mark
    coordinator: SavedCoordinator
    heard: list[Moment | None]
    reports: list[Report]
    ended: Moment | None
    reason: str
    slowest: Rank | None
    round: Annotated[int, Field(ge=1)]


def check_head(head: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a journal's head if it is valid.

    Args:
        head: the journal's head.
        name: name of the job whose journal it is.

    Raises:
        DamagedJournalError: it is not a job's, or another job's; the message says what is wrong.
    """
    try:
        known = Head.model_validate(head)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DamagedJournalError(f"its head's {place} makes no sense: {first['msg']}") from None
    workers = known.coordinator.num_workers
    ranks = [record.rank for record in known.coordinator.records]
    if known.job != name:
        raise DamagedJournalError(f"its head is that of job {known.job[:80]!r}")
    if ranks != list(range(workers)) or len(known.heard) != workers:
        raise DamagedJournalError(f"its head is not that of {workers} workers")
    if any(one.rank >= workers for one in known.reports) or any(one >= workers for one in known.coordinator.absent):
        raise DamagedJournalError("its head names ranks that the job does not have")
    return head
