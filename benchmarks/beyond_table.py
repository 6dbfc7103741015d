"""The table of beyond_paper.py's runs to the end: every variant over its seeds, and whether it holds up to plain ESync.

A variant holds up where its time to an accuracy of 0.8 is no longer than plain ESync's on the same data (means over the
seeds, all of which get there), and its final accuracy is not more than one standard deviation of plain ESync's below.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduce_paper import PARTITIONS, TARGET

PLAIN = "esync"
#: Flag of the compression → the SSGD that exchanges the same.
SSGD = {"--compression=fp16": "sync-fp16", "--compression=2bit": "sync-2bit", "--compression=topk": "sync-topk"}


@dataclass(frozen=True)
class Variant:
    """One variant on one kind of data, over its seeds.

    Attributes:
        results: of its runs, as JSON.
        timing: of its run without gradients; None where there is none.
    """

    results: Sequence[Mapping[str, Any]]
    timing: Mapping[str, Any] | None

    @property
    def times(self) -> list[float]:
        """Seconds to the target, of those seeds that get there."""
        found = [result["time_to"].get(TARGET) for result in self.results]
        return [float(each) for each in found if each is not None]

    @property
    def time(self) -> float | None:
        """Their mean; None where not all seeds get there."""
        times = self.times
        return statistics.fmean(times) if self.results and len(times) == len(self.results) else None

    @property
    def finals(self) -> list[float]:
        """Final accuracies, on all test images."""
        return [float(result["final_accuracy"]) for result in self.results]


def compared(out: Path, variants: Mapping[str, Sequence[str]], seeds: int) -> str:
    """What came out, as Markdown."""
    lines = []
    for data in PARTITIONS:
        found = {name: _read(out, name, data, seeds) for name in variants}
        lines += [
            f"{data}, seeds done: {', '.join(str(n) for n in sorted({len(v.results) for v in found.values()}))}",
            "",
            "| run | efficiency | computing | MB in a round | to 0.8 | SSGD alike ÷ this | final accuracy | holds up |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        lines += [_row(name, variants[name], found) for name in variants if found[name].results]
        lines.append("")
    return "\n".join(lines)


def verdict(variant: Variant, plain: Variant) -> str:
    """Whether a variant holds up to plain ESync, and if not, in what."""
    if not plain.results or len(variant.results) != len(plain.results):
        return "not comparable yet"
    failures = []
    if variant.time is None or (plain.time is not None and variant.time > plain.time):
        failures.append("later" if variant.time is not None else "0.8 not reached by all")
    if statistics.fmean(variant.finals) < statistics.fmean(plain.finals) - _deviation(plain.finals):
        failures.append("less accurate")
    return f"**no**: {', '.join(failures)}" if failures else "yes"


def _read(out: Path, name: str, data: str, seeds: int) -> Variant:
    paths = [out / f"{name}-{data}-seed{seed}.json" for seed in range(seeds)]
    timing = out / f"{name}-timing.json"
    return Variant(
        [json.loads(path.read_text()) for path in paths if path.exists()],
        json.loads(timing.read_text()) if timing.exists() else None,
    )


def _row(name: str, flags: Sequence[str], found: Mapping[str, Variant]) -> str:
    variant = found[name]
    timing = variant.timing or variant.results[0]
    ratios = [device["computing_ratio"] for device in timing["devices"]]
    received = sum(timing["traffic"][server]["received"] for server in timing["servers"]) / timing["rounds"]
    times, alike = variant.times, found[_ssgd(flags)].time
    reached = f"{_spread(times, 0)} s" if times else "–"
    if len(times) < len(variant.results):
        reached += f" ({len(times)} of {len(variant.results)})"
    faster = f"{alike / variant.time:.1f}" if alike is not None and variant.time is not None else "–"
    holds = "–" if name == PLAIN else verdict(variant, found[PLAIN])
    return (
        f"| {name} | {timing['efficiency']:.3f} | {min(ratios):.3f}–{max(ratios):.3f} | {received / 1e6:.3g} | "
        f"{reached} | {faster} | {_spread(variant.finals, 4)} | {holds} |"
    )


def _ssgd(flags: Iterable[str]) -> str:
    return next((name for start, name in SSGD.items() for flag in flags if flag.startswith(start)), "sync")


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.fmean(values):.{digits}f} ± {_deviation(values):.{digits}f}"


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
