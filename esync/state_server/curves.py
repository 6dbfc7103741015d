"""Curves over a whole run in a limited number of points; the database aggregates the rounds."""

import math
from collections import defaultdict
from typing import Any

from django.db.models import F, FloatField, Max, Min, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Floor, Greatest

from .. import config
from ..runtime.logged_values import MAX_NAMES
from .models import Round, Run

_RATES = ("samples", "bytes_sent", "bytes_received")


def curves(run: int, points: int) -> dict[str, Any]:
    """Return throughput, traffic, the metric, and what the program has logged, over time.

    Times are in seconds since the run began.

    Args:
        run: the run's primary key.
        points: largest number of points in each curve.
    """
    about = Run.objects.values("started", "metric", "goal", "logged").get(pk=run)
    began, names = about["started"], about["logged"][:MAX_NAMES]
    rounds = Round.objects.filter(run=run)
    extent = rounds.aggregate(last=Max("finished"), longest=Max("seconds"), workers=Max("rank"))
    if extent["last"] is None:
        return {**about, "at": [], **{name: [] for name in _RATES}, "accuracy": [], "logged": {}}
    limit = max(2, min(points, config.CURVE_CELLS // (extent["workers"] + 1)))
    duration = extent["last"] - began
    width = max(duration / limit, min(extent["longest"] / 2, duration), 1e-3) * (1 + 1e-9)  # includes the last round
    logged = {name: _logged(rounds, name, began, width) for name in names}
    return {**about, **_rates(rounds, began, width), "accuracy": _accuracy(rounds, began, points), "logged": logged}


def _logged(rounds: Any, name: str, began: float, width: float) -> list[dict[str, float]]:
    """Return the means of a logged number over all workers, weighted by the samples of their rounds."""
    weight = Greatest(F("samples"), 1, output_field=FloatField())
    means = (
        rounds.annotate(
            value=Cast(KeyTextTransform(name, "logged"), FloatField()),
            bin=Floor(Cast((F("finished") - began) / width, FloatField())),
        )
        .exclude(value=None)
        .values("bin")
        .annotate(mean=Sum(F("value") * weight) / Sum(weight), end=Max("finished"))
        .order_by("bin")
    )
    return [{"at": round(row["end"] - began, 3), "value": row["mean"]} for row in means]


def _rates(rounds: Any, began: float, width: float) -> dict[str, list[float]]:
    """Return samples and bytes per second of all workers together.

    A worker's rate is the average over each of its rounds. In a period in which none of its rounds
    ends, it is that of the round that ends next.
    """
    cells = (
        rounds.annotate(bin=Floor(Cast((F("finished") - began) / width, FloatField())))
        .values("rank", "bin")
        .annotate(seconds_=Sum("seconds"), longest=Max("seconds"), **{f"{name}_": Sum(name) for name in _RATES})
        .order_by("bin")
    )
    of_rank: dict[int, list[tuple[int, list[float]]]] = defaultdict(list)
    longest: dict[int, float] = {}
    for cell in cells:
        seconds = max(cell["seconds_"], 1e-6)
        of_rank[cell["rank"]].append((int(cell["bin"]), [cell[f"{name}_"] / seconds for name in _RATES]))
        longest[cell["rank"]] = cell["longest"]
    last = max(steps[-1][0] for steps in of_rank.values())
    first = min(steps[0][0] for steps in of_rank.values())
    sums = [[0.0] * len(_RATES) for _ in range(last + 1)]
    for rank, steps in of_rank.items():
        begin = first
        # A worker is assumed to be as fast in its current round as in the last reported one.
        steps.append((min(last, steps[-1][0] + math.ceil(longest[rank] / width)), steps[-1][1]))
        for bin_, rates in steps:
            for bin_index in range(max(begin, 0), bin_ + 1):
                for index, rate in enumerate(rates):
                    sums[bin_index][index] += rate
            begin = bin_ + 1
    shown = range(max(first, 0), last + 1)
    return {
        "at": [round((bin_index + 1) * width, 3) for bin_index in shown],
        **{name: [round(sums[bin_index][index], 3) for bin_index in shown] for index, name in enumerate(_RATES)},
    }


def _accuracy(rounds: Any, began: float, points: int) -> list[dict[str, float]]:
    """Return at most `points` evaluations, each at the end of the round of its weights."""
    evaluations = list(
        rounds.exclude(accuracy=None)
        .values("rank", "accuracy_round", "accuracy")
        .annotate(told=Min("finished"))
        .order_by("accuracy_round", "told")
    )
    newest = {row["accuracy_round"]: row for row in evaluations}
    rows = list(newest.values())
    step = -(-len(rows) // points)
    sampled = rows[::-1][:: max(step, 1)][::-1]  # includes the last one
    numbers = [row["accuracy_round"] for row in sampled]
    ends: dict[int, float] = {}
    for start in range(0, len(numbers), 500):
        part = rounds.filter(round__in=numbers[start : start + 500])
        ends.update(part.values_list("round").annotate(end=Max("finished")))
    return [
        {
            "round": row["accuracy_round"],
            "at": round(ends.get(row["accuracy_round"], row["told"]) - began, 3),
            "accuracy": row["accuracy"],
        }
        for row in sampled
    ]
