"""The table of the ESync paper's experiments: what came out of the runs, beside what the paper says."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduction_runs import Run, result_of, time_to_target

#: What the paper's Table 1 says: speedup over SSGD, accuracy of ESync, of sequential SGD.
PAPER = {
    "resnet18-v1": (7, 0.926, 0.919),
    "mobilenet-v1": (2, 0.905, 0.906),
    "resnet50-v1": (4, 0.914, 0.910),
    "resnet50-v2": (6, 0.917, 0.918),
    "alexnet": (27, 0.932, 0.928),
    "inception-v3": (7, 0.940, 0.932),
}
#: Student's t, 97.5 %, by degrees of freedom from 1.
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


def table(out: Path, chosen: Sequence[Run]) -> str:
    """What came out, as Markdown."""
    results = {run: result_of(out, run) for each in chosen for run in (each, each.continued) if run}
    lines = [
        "| run | samples/s | efficiency | MB/s at the server | computing | to 0.8 | final accuracy |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_row(run, result) for run, result in results.items() if result and not run.parity]
    lines += ["", "| network | speedup, published rate | SSGD at its best rate | paper | final, ESync | paper |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for network in dict.fromkeys(run.network for run in chosen):
        esync = _longest(results, Run(network, "esync"))
        syncs = {factor: _longest(results, Run(network, "sync", factor=factor)) for factor in (1, 2, 4)}
        if esync and syncs[1]:
            fast, slow = time_to_target(esync), time_to_target(syncs[1])
            best, factor = min((time_to_target(each), factor) for factor, each in syncs.items() if each)
            speedup, accuracy = PAPER[network][:2]
            lines.append(
                f"| {network} | {_ratio(slow, fast)} | {_ratio(best, fast)} (×{factor}) | {speedup} | "
                f"{_accuracy(esync)} | {accuracy} |"
            )
    return "\n".join([*lines, "", *parity(results)]) + "\n"


def parity(results: dict[Run, dict[str, Any] | None]) -> list[str]:
    """Final accuracies of ESync beside those of sequential SGD."""
    found = {
        algorithm: {run.seed: each["final_accuracy"] for run, each in results.items() if run.parity and each
                    and run.algorithm == algorithm}
        for algorithm in ("esync", "local")
    }  # fmt: skip
    seeds = sorted(set(found["esync"]) & set(found["local"]))
    if len(seeds) < 2:
        return []
    lines = ["| algorithm | seeds | mean | standard deviation |", "| --- | --- | --- | --- |"]
    for algorithm, name in (("esync", "ESync"), ("local", "sequential SGD")):
        values = [found[algorithm][seed] for seed in seeds]
        mean, deviation = statistics.fmean(values), statistics.stdev(values)
        lines.append(f"| {name} | {len(seeds)} | {mean:.4f} | {deviation:.4f} |")
    differences = [found["esync"][seed] - found["local"][seed] for seed in seeds]
    half = STUDENT[min(len(seeds) - 2, len(STUDENT) - 1)] * statistics.stdev(differences) / math.sqrt(len(seeds))
    return [*lines, "", f"Difference {statistics.fmean(differences):+.4f} ± {half:.4f} (95 %, pairs of equal seed)."]


def _longest(results: dict[Run, dict[str, Any] | None], run: Run) -> dict[str, Any] | None:
    return (results.get(run.continued) if run.continued else None) or results.get(run)


def _row(run: Run, result: dict[str, Any]) -> str:
    rate = sum(result["traffic"][server]["received"] for server in result["servers"]) / result["seconds"] / 1e6
    ratios = [device["computing_ratio"] for device in result["devices"]]
    reached = time_to_target(result)
    return (
        f"| {run.name} | {result['throughput']:.0f} | {result['efficiency']:.3f} | {rate:.1f} in | "
        f"{min(ratios):.3f}–{max(ratios):.3f} | {f'{reached:.0f} s' if reached < math.inf else '–'} | "
        f"{_accuracy(result)} |"
    )


def _accuracy(result: dict[str, Any]) -> str:
    value = result["final_accuracy"]
    return "–" if value is None else f"{value:.3f}"


def _ratio(slow: float, fast: float) -> str:
    if fast == math.inf:
        return "–"
    return f"{slow / fast:.1f}" if slow < math.inf else "not reached by SSGD"
