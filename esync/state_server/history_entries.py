"""Entries of the history on their way from the jobs to the database."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunRecord:
    """The row of a run; see `models.Run`."""

    key: str
    job: str
    run: str
    started: float
    num_workers: int
    epsilon: float | None
    slowest_iterations: int


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """An entry: its kind, its run and its fields."""

    kind: str  # report, end or event
    info: RunRecord
    fields: dict[str, Any]
