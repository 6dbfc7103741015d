"""The table of beyond_paper.py's runs to the end: every variant over its seeds, and whether it holds up to plain ESync.

A variant holds up where its time to an accuracy of 0.8 is no longer than plain ESync's on the same data (means over the
seeds, all of which get there), and its final accuracy is not more than one standard deviation of plain ESync's below.
Where plain ESync does not get to 0.8 with all seeds, the highest of 0.7, 0.6 and 0.5 that it gets to stands for it.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction_runs import PARTITIONS, TARGET

PLAIN = "esync"
#: Where plain ESync does not get to the target.
LOWER = ("0.7", "0.6", "0.5")
#: Flag of the compression → the SSGD that exchanges the same.
SSGD = {"--compression=fp16": "sync-fp16", "--compression=2bit": "sync-2bit", "--compression=topk": "sync-topk"}


@dataclass(frozen=True)
class Variant:
    """One variant on one kind of data.

    Attributes:
        results: seed → its run, as JSON.
        timing: its run without gradients.
    """

    results: Mapping[int, Mapping[str, Any]]
    timing: Mapping[str, Any]

    def times(self, target: str) -> list[float]:
        """Seconds to an accuracy, of those seeds that get there."""
        found = [result["time_to"].get(target) for result in self.results.values()]
        return [float(each) for each in found if each is not None]

    def time(self, target: str) -> float | None:
        """Their mean; None where not all seeds get there."""
        times = self.times(target)
        return statistics.fmean(times) if times and len(times) == len(self.results) else None

    @property
    def finals(self) -> list[float]:
        """Final accuracies, on all test images."""
        return [float(result["final_accuracy"]) for result in self.results.values()]

    def of(self, seeds: Iterable[int]) -> "Variant":
        """The same with these seeds only."""
        return Variant({seed: self.results[seed] for seed in seeds if seed in self.results}, self.timing)


def compared(out: Path, variants: Mapping[str, Sequence[str]], seeds: int) -> str:
    """What came out, as Markdown: exchanges from the runs without gradients, then a table for each kind of data."""
    timings = {name: out / f"{name}-timing.json" for name in variants}
    done = {name: json.loads(path.read_text()) for name, path in timings.items() if path.exists()}
    lines = ["| run | efficiency | computing | MB received by the server in a round |", "| --- | --- | --- | --- |"]
    lines += [_exchanges(name, timing) for name, timing in done.items()]
    for data in PARTITIONS:
        found = {name: _read(out, name, data, seeds, timing) for name, timing in done.items()}
        plain = found.get(PLAIN)
        if plain is None or not plain.results:
            continue
        target = next((each for each in (TARGET, *LOWER) if plain.time(each) is not None), TARGET)
        lines += [
            "",
            f"| {data} | seeds | to {target} | SSGD alike ÷ this | final accuracy | holds up |",
            "| --- | --- | --- | --- | --- | --- |",
            *(_row(name, variants[name], found, target) for name, each in found.items() if each.results),
        ]
    return "\n".join(lines) + "\n"


def verdict(variant: Variant, plain: Variant, target: str) -> str:
    """Whether a variant holds up to plain ESync with the seeds that both have, and if not, in what."""
    common = sorted(set(variant.results) & set(plain.results))
    variant, plain = variant.of(common), plain.of(common)
    failures = []
    time, bound = variant.time(target), plain.time(target)
    if time is None:
        failures.append(f"{target} not reached" if not variant.times(target) else f"{target} not always reached")
    elif bound is not None and time > bound:
        failures.append("later")
    if statistics.fmean(variant.finals) < statistics.fmean(plain.finals) - _deviation(plain.finals):
        failures.append("less accurate")
    return f"**no**: {', '.join(failures)}" if failures else "yes"


def _read(out: Path, name: str, data: str, seeds: int, timing: Mapping[str, Any]) -> Variant:
    paths = {seed: out / f"{name}-{data}-seed{seed}.json" for seed in range(seeds)}
    return Variant({seed: json.loads(path.read_text()) for seed, path in paths.items() if path.exists()}, timing)


def _exchanges(name: str, timing: Mapping[str, Any]) -> str:
    ratios = [device["computing_ratio"] for device in timing["devices"]]
    received = sum(timing["traffic"][server]["received"] for server in timing["servers"]) / timing["rounds"]
    return f"| {name} | {timing['efficiency']:.3f} | {min(ratios):.3f}–{max(ratios):.3f} | {received / 1e6:.3g} |"


def _row(name: str, flags: Sequence[str], found: Mapping[str, Variant], target: str) -> str:
    variant, ssgd = found[name], found.get(_ssgd(flags))
    times, time = variant.times(target), variant.time(target)
    alike = None if ssgd is None else ssgd.of(variant.results).time(target)
    reached = f"{_spread(times, 0)} s" if times else "–"
    if 0 < len(times) < len(variant.results):
        reached += f" ({len(times)} of {len(variant.results)})"
    faster = f"{alike / time:.1f}" if alike is not None and time is not None else "–"
    holds = "–" if name == PLAIN else verdict(variant, found[PLAIN], target)
    return f"| {name} | {len(variant.results)} | {reached} | {faster} | {_spread(variant.finals, 3)} | {holds} |"


def _ssgd(flags: Iterable[str]) -> str:
    return next((name for start, name in SSGD.items() for flag in flags if flag.startswith(start)), "sync")


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.fmean(values):.{digits}f} ± {_deviation(values):.{digits}f}"


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
