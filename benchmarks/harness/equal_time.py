"""The table of variants after equal time."""

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from .beyond_runs import PLAIN, SYNC, EqualTimeRun, Setting, at_times, equal_time_runs, tuned
from .figures import markdown_table, spread_or_value, standard_deviation, time_to
from .simulations import results

#: Kind of data → accuracies whose times are compared.
TARGETS = {"niid": (0.7, 0.75, 0.8), "iid": (0.8,)}

Results = Mapping[int, Mapping[str, Any]]


def table(given: argparse.Namespace, setting: Setting) -> str:
    """Return the finished runs in Markdown, a table for each kind of data."""
    finished = results(given.out)
    found: dict[str, dict[str, dict[int, Any]]] = {}
    runs: dict[tuple[str, str], EqualTimeRun] = {}
    for run in equal_time_runs(argparse.Namespace(**{**vars(given), "tune": False}), setting):
        if run.name in finished:
            found.setdefault(run.data, {}).setdefault(run.variant, {})[run.seed] = finished[run.name]
            runs[run.data, run.variant] = run
    parts = []
    for data, variants in found.items():
        times = list(at_times(next(iter(next(iter(variants.values())).values())), given.minutes))
        heads = [data, "rate", "seeds", *(f"to {target:g}" for target in TARGETS[data]), *times]
        heads += ["ahead of ESync", "ahead of SSGD"]
        rows = []
        for name, seeds in variants.items():
            factor = tuned(given, name, data, setting)
            rate = f"× {runs[data, name].factor:g}" + ("" if factor is not None else ", not tuned")
            cells = [name, rate, ", ".join(map(str, sorted(seeds)))]
            cells += [_time(seeds, target) for target in TARGETS[data]]
            curves = [at_times(each, given.minutes) for each in seeds.values()]
            cells += [_accuracy([curve[time] for curve in curves]) for time in times]
            cells += [
                "–" if other == name else ahead(seeds, variants.get(other, {}), given.minutes)
                for other in (PLAIN, SYNC)
            ]
            rows.append(cells)
        parts.append(markdown_table(heads, rows))
    return "\n".join(parts)


def ahead(variant: Results, other: Results, minutes: float) -> str:
    """Return when a variant is the more accurate one, over the seeds that both have.

    That is where the mean of the differences is above their standard deviation; of one seed, above
    0.
    """
    common = sorted(variant.keys() & other.keys())
    if not common:
        return "–"
    pairs = [(at_times(variant[seed], minutes), at_times(other[seed], minutes)) for seed in common]
    times = []
    for time in pairs[0][0]:
        differences = [one[time] - two[time] for one, two in pairs]
        if any(map(math.isnan, differences)):
            continue  # one of the two had not been evaluated by then
        if statistics.fmean(differences) > standard_deviation(differences):
            times.append(time)
    return ", ".join(times) or "never"


def _time(seeds: Results, target: float) -> str:
    times = [at for at in (time_to(result, target) for result in seeds.values()) if at < math.inf]
    if not times:
        return "–"
    some = f" ({len(times)} of {len(seeds)})" if len(times) < len(seeds) else ""
    return f"{spread_or_value(times, 0)} s{some}"


def _accuracy(values: Sequence[float]) -> str:
    return "–" if any(map(math.isnan, values)) else spread_or_value(values, 3)
