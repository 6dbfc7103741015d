"""How much sooner than SSGD is ESync at an accuracy (ESync paper, Table 1), and after how many samples?

    python benchmarks/time_to_accuracy.py [--jobs 2] [--budget CORE-HOURS] [--list]

Trains the paper's six networks with a quarter of their channels (Inception-v3 on images of 107 × 107
pixels), and at the end ResNet-18-v1 itself, on its clusters (clusters/paper*.yaml) in virtual time,
i.i.d., until a test accuracy of 0.8. Devices take as long for a batch, and messages are as large, as
with the full networks. Every round is evaluated, of sequential SGD every fifth iteration, of SSGD
with Inception-v3 every fifth round; an evaluation takes no virtual time. Each algorithm has several
multiples of the published learning rate; those that count are the published one and that with the
best mean time.
`--factors` and `--settings` take some of them.

ESync's settings: the published one; the same with batch norm's statistics weighted by samples, or
estimated anew from 4,000 training images; exchanges in float16 with all weighted by samples, with
overlap, without it, and without it and with statistics estimated anew; one exchange of each host
(`per_host`), as published and in float16 with all weighted by samples. Besides, `--preset fast` with
one exchange of each host. Sequential SGD trains on the fastest device alone, with
all data.

A run that is done is not done again; `--out` has runs.json and table.md.
"""

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from harness import program
from harness.figures import markdown_table, spread_or_missed, write_table
from harness.paper_runs import BATCH_SIZE, CLUSTERS, GRADIENT, OVERHEAD
from harness.simulations import (
    RATE,
    TARGET,
    carry_out,
    forget,
    listed,
    only,
    results,
    simulate,
    spent,
    within_budget,
    write_description,
)
from harness.simulations import parser as simulation_parser

from esync.arguments import count
from esync.models.names import has_batch_norm
from esync.reports.published_results import TABLE_1
from esync.simulate.timing import SIZES

#: Networks of the paper, in the order of the table.
NETWORKS = ("resnet18-v1", "mobilenet-v1", "resnet50-v1", "resnet50-v2", "alexnet", "inception-v3")
#: Network → the function that builds a smaller one: with images of 299 × 299 pixels a gradient of
#: Inception-v3 takes nine times as long.
SMALLER = {"inception-v3": "benchmarks/harness/small_inception.py:inception_v3"}
#: Networks that are trained as they are, too.
FULL = ("resnet18-v1",)
#: Setting → its flags, multiples of the published rate, seconds of virtual time at most, and
#: gradients of all workers to 0.8 (a guess, for the plan).
SETTINGS: dict[str, tuple[tuple[str, ...], tuple[int, ...], float, int]] = {
    "esync": (("--mode=esync",), (1, 2, 4), 200, 2800),
    "esync-statistics-by-samples": (("--mode=esync", "--statistics-weighting=samples"), (1, 4), 200, 2800),
    "esync-reestimated": (("--mode=esync", "--reestimate-statistics=4000"), (1, 4), 200, 2800),
    "esync-overlap-fp16-samples": (
        ("--mode=esync", "--overlap", "--compression=fp16", "--weighting=samples"),
        (1, 4),
        200,
        2800,
    ),
    "esync-fp16-samples": (("--mode=esync", "--compression=fp16", "--weighting=samples"), (1, 2, 4), 200, 2000),
    "esync-fp16-samples-reestimated": (
        ("--mode=esync", "--compression=fp16", "--weighting=samples", "--reestimate-statistics=4000"),
        (1, 2, 4),
        200,
        2000,
    ),
    "esync-per-host": (("--mode=esync",), (1, 4), 200, 2800),
    "esync-per-host-fp16-samples": (
        ("--mode=esync", "--compression=fp16", "--weighting=samples"),
        (1, 4),
        200,
        2000,
    ),
    "preset-fast-per-host": (("--preset=fast",), (1,), 90, 1200),
    "sync": (("--mode=sync",), (1, 2, 4, 8), 3600, 500),
    "local": (("--mode=local", "--eval-duration=5"), (1, 2, 4, 8), 600, 300),
}
#: Network → factors on these seconds and on these gradients: AlexNet, without batch norm, begins
#: slowly; a batch of Inception-v3 takes each device 173 times as long as one of ResNet-18.
LONGER = {"alexnet": (4, 4), "inception-v3": (173, 1)}
#: Network → rounds of SSGD between two evaluations, which cost more than the rounds.
SSGD_EVALUATED_EVERY = {"inception-v3": 5}
#: Test images of an evaluation.
EVALUATED = 2500
#: Part of the names of settings in which the workers of a host exchange as one.
PER_HOST = "-per-host"


@dataclass(frozen=True)
class TargetRun:
    """A simulation that ends at the target.

    Attributes:
        network: one of NETWORKS.
        setting: one of SETTINGS.
        factor: multiple of the published learning rate.
        seed: seed of data and weights.
        full: whether it trains the network as it is, not the one with fewer channels.
    """

    network: str
    setting: str
    factor: int
    seed: int
    full: bool = False

    @property
    def trained(self) -> str:
        """Name of the network that is trained."""
        return self.network if self.full else f"{self.network}x0.25"

    @property
    def name(self) -> str:
        """Stem of its files."""
        return f"{self.trained}-{self.setting}-x{self.factor}-seed{self.seed}"

    @property
    def max_time(self) -> float:
        """Seconds of virtual time at most."""
        return SETTINGS[self.setting][2] * LONGER.get(self.network, (1, 1))[0]

    def words(self, options: argparse.Namespace) -> list[str]:
        """Return the command line."""
        flags = SETTINGS[self.setting][0]
        rate = "--learning-rate" if self.setting in ("sync", "local") else "--local-lr"
        network = self.trained if self.full else SMALLER.get(self.network, self.trained)
        words = [*flags, f"--network={network}", f"{rate}={RATE * self.factor:g}", f"--seed={self.seed}"]
        if self.setting == "sync" and (every := SSGD_EVALUATED_EVERY.get(self.network)):
            words.append(f"--eval-duration={every}")
        words += [f"--target-accuracy={TARGET}", f"--max-time={self.max_time:g}", f"--test-images={EVALUATED}"]
        return simulate(self.description(options.out), self, options.out, *words, "--no-logs")

    def description(self, out: Path) -> Path:
        """Return the file of the paper's cluster with the full network's messages and free evaluations."""
        source = program.CLUSTERS / f"{CLUSTERS.get(self.network, f'paper-{self.network}')}.yaml"
        content = yaml.safe_load(source.read_text())
        content["simulate"] = {"model_bytes": f"{4 * sum(SIZES[self.network].values())}B", "evaluation_time": 1e-6}
        per_host = PER_HOST in self.setting
        if per_host:
            content["per_host"] = True
        return write_description(out / f"{self.network}{PER_HOST if per_host else ''}.yaml", content)


def networks() -> list[tuple[str, bool]]:
    """Return the networks, and whether they are trained as they are."""
    return [*((network, False) for network in NETWORKS), *((network, True) for network in FULL)]


def runs(seeds: int) -> list[TargetRun]:
    """Return all runs, network by network and seed by seed: the beginning can be compared."""
    return [
        TargetRun(network, setting, factor, seed, full)
        for network, full in networks()
        for seed in range(seeds)
        for setting, (_, factors, _, _) in SETTINGS.items()
        for factor in factors
        if has_batch_norm(network) or not any("statistics" in flag for flag in SETTINGS[setting][0])
    ]


def planned(run: TargetRun) -> float:
    """Return the core-seconds that a run costs by estimate; evaluations cost as much as gradients."""
    gradients = SETTINGS[run.setting][3] * LONGER.get(run.network, (1, 1))[1]
    return 2 * OVERHEAD * GRADIENT[run.trained] * gradients


def reached(result: dict[str, Any]) -> tuple[float, float]:
    """Return virtual seconds and samples of all workers until 0.8; infinite where it was not reached.

    Samples are those of the run times the share of its rounds until then.
    """
    for number, seconds, accuracy in result["accuracies"]:
        if accuracy >= float(TARGET):
            return seconds, result["samples"] * number / result["rounds"]
    return math.inf, math.inf


def stopped_too_soon(run: TargetRun, finished: Mapping[str, Any]) -> bool:
    """Return whether a finished run was ended by a limit that has been raised since."""
    result = finished.get(run.name)
    return result is not None and reached(result)[0] == math.inf and result["seconds"] < run.max_time


def table(out: Path, seeds: int) -> str:
    """Return the results in Markdown: for each network and setting the published rate and the best."""
    finished = results(out)
    heads = ["network", "setting", "rate", "seeds", "seconds to 0.8", "samples to 0.8", "SSGD's seconds ÷ these"]
    heads += ["samples ÷ sequential SGD's", "published speedup"]
    rows = []
    for network, full in networks():
        outcomes = {
            (setting, factor): [reached(finished[run.name]) for run in chosen if run.name in finished]
            for setting, (_, factors, _, _) in SETTINGS.items()
            for factor in factors
            if (chosen := [TargetRun(network, setting, factor, seed, full) for seed in range(seeds)])
        }
        for kind in ("published", "best"):
            chosen_results = {setting: _chosen(outcomes, setting, kind) for setting in SETTINGS}
            for setting, result in chosen_results.items():
                if result is None:
                    continue
                factor, values = result
                seconds, samples = ([value[index] for value in values] for index in (0, 1))
                cells = [
                    TargetRun(network, setting, factor, 0, full).trained,
                    setting,
                    f"× {factor} ({kind})",
                    str(len(values)),
                ]
                cells += [spread_or_missed(seconds, 1), spread_or_missed(samples, 0)]
                cells.append(_ratio(chosen_results["sync"], seconds, 0, inverse=False))
                cells.append(_ratio(chosen_results["local"], samples, 1, inverse=True))
                cells.append(f"{TABLE_1[network].speedup:g}" if setting == "esync" else "–")
                rows.append(cells)
    return markdown_table(heads, rows)


RateResults = tuple[int, list[tuple[float, float]]]


def _chosen(reached: dict[tuple[str, int], list[tuple[float, float]]], setting: str, kind: str) -> RateResults | None:
    """Return factor and results of a setting at the published rate, or at its best one."""
    by_factor = {factor: values for (name, factor), values in reached.items() if name == setting and values}
    if kind == "published":
        return (1, by_factor[1]) if 1 in by_factor else None
    if not by_factor:
        return None
    factor = min(by_factor, key=lambda factor: statistics.fmean(seconds for seconds, _ in by_factor[factor]))
    return factor, by_factor[factor]


def _ratio(other: RateResults | None, values: Sequence[float], index: int, inverse: bool) -> str:
    """Return the ratio of the mean of another setting to that of these values, or the inverse."""
    if other is None:
        return "–"
    means = statistics.fmean(value[index] for value in other[1]), statistics.fmean(values)
    if math.inf in means:
        return "–"
    return f"{means[1] / means[0] if inverse else means[0] / means[1]:.2f}"


def main() -> int:
    """Carry out the runs and print the table."""
    parser = simulation_parser(__doc__, "time-to-accuracy", 3, "how many")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--settings", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--factors", nargs="+", type=count, metavar="N", help="of the published rate (default: all)")
    options = parser.parse_args()
    chosen = [run for run in runs(options.seeds) if run.setting in options.settings]
    chosen = only((run for run in chosen if options.factors is None or run.factor in options.factors), options.only)
    finished = results(options.out)
    outdated = {run.name for run in chosen if stopped_too_soon(run, finished)}
    if options.list:
        return listed(chosen, options, planned, outdated)
    kept = within_budget(chosen, options, planned, outdated)
    forget(options.out, outdated.intersection(run.name for run in kept))
    succeeded = carry_out(kept, options)
    write_table(options.out / "table.md", table(options.out, options.seeds))
    core_hours = sum(spent(options.out).values()) / 3600
    print(f"{core_hours:.2f} core-hours spent; batches of {BATCH_SIZE}, {EVALUATED} test images")
    return 0 if succeeded else 1


if __name__ == "__main__":
    program.run(main)
