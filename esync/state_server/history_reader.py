"""Read the history from the database."""

from typing import Any

from django.db.models import F, Max, Min, QuerySet, Sum
from django.db.models.functions import Coalesce

from .models import Event, Round, Run
from .schema import EventRow, RoundRow

_ROUND = [name for name in RoundRow.model_fields if name not in ("metric", "goal")]  # those are the run's
_RUN = [field.name for field in Run._meta.fields if field.name not in ("id", "key")]
_SUMS = ("samples", "bytes_sent", "bytes_received", "compute", "wait", "exchange")


def find(job: str, key: str = "") -> int | None:
    """Return the primary key of a job's run: the one with that key, or the newest.

    Returns None if there is none.
    """
    runs = Run.objects.filter(job=job)
    if key:
        runs = runs.filter(key=key)
    return runs.order_by("-started", "-pk").values_list("pk", flat=True).first()


def rounds(run: int, after: int, limit: int) -> list[dict[str, Any]]:
    """Return the rounds after the one whose id is `after`, in the order of their arrival."""
    return list(_rounds(run).filter(pk__gt=after).order_by("pk")[:limit])


def newest_rounds(run: int, limit: int) -> list[dict[str, Any]]:
    """Return the rounds that arrived last, in the order of their arrival."""
    return list(_rounds(run).order_by("-pk")[:limit])[::-1]


def _rounds(run: int) -> QuerySet[Round, dict[str, Any]]:
    """Return the rounds of a run, each with the run's metric."""
    return Round.objects.filter(run=run).values(*_ROUND, metric=F("run__metric"), goal=F("run__goal"))


def events(run: int, after: int, limit: int) -> list[dict[str, Any]]:
    """Return the events after the one whose id is `after`, in the order of their arrival."""
    return list(Event.objects.filter(run=run, pk__gt=after).order_by("pk").values(*EventRow.model_fields)[:limit])


def runs(job: str, limit: int) -> list[dict[str, Any]]:
    """Return runs with their totals, the newest first; of all jobs if `job` is empty."""
    matching = Run.objects.filter(job=job) if job else Run.objects.all()
    rows = matching.order_by("-started", "-pk")[:limit]
    totals = {
        row["run"]: row
        for row in Round.objects.filter(run__in=[row.pk for row in rows])
        .values("run")
        .annotate(
            rounds=Max(Coalesce("run_round", "round")),
            last=Max("finished"),
            highest=Max("accuracy"),
            lowest=Min("accuracy"),
            **{f"sum_{name}": Sum(name) for name in _SUMS},
        )
    }
    return [_run(row, totals.get(row.pk, {})) for row in rows]


def _run(row: Run, totals: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row.key,
        **{name: getattr(row, name) for name in _RUN},
        "rounds": totals.get("rounds", 0),
        "seconds": max(0.0, totals.get("last", row.started) - row.started),
        **{name: totals.get(f"sum_{name}") or 0 for name in _SUMS},
        "best_accuracy": totals.get("highest" if row.goal == "max" else "lowest"),
    }
