"""How much sooner than the fastest device alone are all devices at an accuracy?

    python benchmarks/fastest_device.py --tune [--cluster NAME] [--data iid|niid]
    python benchmarks/fastest_device.py [--seeds 3]

What a user would do instead of training on unequal devices is to train on the fastest one. So
`--mode local` on it, synchronous SGD, ESync as published, and `--preset fast` each train a narrow
ResNet-18 in virtual time, and the times to three accuracies are compared. Evaluations take no
virtual time. Exchanges take what they take with the full ResNet-18.

Clusters: the paper's (four GPUs and two processors on two hosts, 1 Gbit/s); `equal`, its four GPUs
only, with 10 Gbit/s; `demo`, the devices of clusters/demo.yaml. The most that can be gained is the
sum of the devices' speeds over the fastest one's.

`--tune` tries learning rates and momentum of every method with seed 0 on 55,000 of the training
images, and tests on the other 5,000. Chosen is the setting with the lowest geometric mean of the
times to the three accuracies; one that is not reached counts as twice the time of the run. The runs
that are reported have the seeds 1, 2 and so on, all training images, and the test set.

`--data niid` divides the data by class, trains with group norm, and looks at lower accuracies; a
device alone has all of the data.

`--limits` measures what holds the preset back, with one seed: each of its parts taken away, and
exchanges that cost nothing.

A run that is done is not done again; `--out` has runs.json and table.md.
"""

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness import program
from harness.figures import markdown_table, spread, time_to, write_table
from harness.held_out import TUNING_SEED, write_held_out
from harness.paper_runs import (
    BATCH_SIZE,
    EVALUATION,
    GRADIENT,
    NARROW,
    OVERHEAD,
    TEST_IMAGES,
    narrow_cluster,
)
from harness.simulations import PARTITIONS, RATE, carry_out, listed, results, simulate, within_budget
from harness.simulations import parser as simulation_parser

from esync.runtime.errors import ExpectedError

#: Accuracies whose times are compared, by kind of data.
TARGETS = {"iid": (0.85, 0.88, 0.90), "niid": (0.7, 0.75, 0.8)}
#: Further flags by kind of data: batch norm's statistics do not fit data by class.
FLAGS = {"iid": (), "niid": ("--normalization=group",)}
ALONE = "local"
PRESET = "fast"


@dataclass(frozen=True)
class Method:
    """A way to train.

    Attributes:
        flags: of the simulation.
        tried: learning rates, as multiples of the published one, and momenta.
        every: rounds between two evaluations.
        seconds: of virtual time at most; ten times as many on the devices of the demonstration.
        throughput: samples of all workers in a second of virtual time, for the plan.
        changes: of the cluster's description.
    """

    flags: tuple[str, ...]
    tried: tuple[tuple[float, float], ...]
    every: int
    seconds: float
    throughput: float
    changes: Mapping[str, Any] = field(default_factory=dict)


_RATES = ((1, 0.0), (2, 0.0), (4, 0.0), (8, 0.0), (1, 0.9))
_PER_HOST = {"per_host": True}
METHODS = {
    ALONE: Method(("--mode=local",), ((0.5, 0.0), (1, 0.0), (2, 0.0), (4, 0.0), (1, 0.9)), 32, 300, 2133),
    "sync": Method(("--mode=sync",), _RATES, 20, 3600, 59),
    "esync": Method(("--mode=esync",), _RATES, 1, 150, 3700),
    PRESET: Method(("--preset=fast",), ((4, 0.0), (8, 0.0), (0.5, 0.9), (1, 0.9), (2, 0.9)), 4, 90, 7700, _PER_HOST),
}
#: What is taken away from the preset to see what it brings: name → further flags, further changes.
LIMITS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "whole": ((), {}),
    "free exchanges": (("--free-network",), {}),
    "no overlap": (("--no-overlap",), {}),
    "fp16 instead of 2bit": (("--compression=fp16",), {}),
    "all devices take part": (("--leave-out=none",), {}),
    "not per host": ((), {"per_host": False}),
    "uniform weights": (("--weighting=uniform",), {}),
    "statistics estimated anew": (("--reestimate-statistics=4000",), {}),
}


@dataclass(frozen=True)
class SpeedRun:
    """One simulation.

    Attributes:
        cluster: "paper", "equal" or "demo".
        method: one of METHODS.
        data: "iid" or "niid".
        seed: seed of data and weights.
        factor: multiple of the published learning rate.
        momentum: of the local steps.
        held_out: whether it is tested on training images that are kept back.
        without: one of LIMITS.
        network: its name.
    """

    cluster: str
    method: str
    data: str
    seed: int
    factor: float
    momentum: float
    held_out: bool = False
    without: str = "whole"
    network: str = NARROW

    @property
    def name(self) -> str:
        """Stem of its files."""
        more = "-held-out" if self.held_out else ""
        more += f"-{self.without.replace(' ', '-')}" if self.without != "whole" else ""
        more += f"-{self.network}" if self.network != NARROW else ""
        return f"{self.cluster}-{self.method}-{self.data}-x{self.factor:g}-m{self.momentum:g}-seed{self.seed}{more}"

    def words(self, given: argparse.Namespace) -> list[str]:
        """Return the command line."""
        method = METHODS[self.method]
        flags, changes = LIMITS[self.without]
        file = narrow_cluster(self.cluster, {**method.changes, **changes}, given.out)
        rate = "--learning-rate" if self.method in (ALONE, "sync") else "--local-lr"
        words = [*method.flags, *flags, f"--network={self.network}", f"{rate}={RATE * self.factor:g}"]
        words += [f"--momentum={self.momentum:g}", f"--seed={self.seed}", f"--partition={PARTITIONS[self.data]}"]
        words += [*FLAGS[self.data], f"--eval-duration={method.every}", f"--max-time={self.seconds:g}"]
        words += [f"--target-accuracy={TARGETS[self.data][-1]}", "--no-logs"]
        return simulate(file, self, given.out, *words, held_out=self.held_out)

    @property
    def seconds(self) -> float:
        """Return the virtual seconds after which it ends."""
        return METHODS[self.method].seconds * (10 if self.cluster == "demo" else 1)

    def planned(self) -> float:
        """Return the core-seconds that it costs by estimate."""
        method, seconds = METHODS[self.method], self.seconds
        evaluated = TEST_IMAGES * seconds if self.method != "sync" else TEST_IMAGES * seconds / 130
        samples = seconds * method.throughput
        return OVERHEAD * GRADIENT[self.network] * (samples + EVALUATION * evaluated) / BATCH_SIZE


def cluster_of(given: argparse.Namespace, method: str) -> str:
    """Return the cluster of a method's runs: one GPU alone is the same in both clusters that have four."""
    return "paper" if method == ALONE and given.cluster == "equal" else given.cluster


def tuning(given: argparse.Namespace, method: str) -> list[SpeedRun]:
    """Return the runs that find a method's learning rate and momentum."""
    settings = (cluster_of(given, method), method, given.data, TUNING_SEED)
    return [SpeedRun(*settings, *each, held_out=True) for each in METHODS[method].tried]


def score(result: Mapping[str, Any], targets: Sequence[float], seconds: float) -> float:
    """Return the geometric mean of the times to the targets; a target that was not reached counts twice the time."""
    return statistics.geometric_mean(min(time_to(result, target), 2 * seconds) for target in targets)


def tuned(given: argparse.Namespace, method: str) -> tuple[float, float] | None:
    """Return the best multiple of the rate and momentum; None: not all have been tried."""
    finished, runs = results(given.out), tuning(given, method)
    if any(run.name not in finished for run in runs):
        return None
    best = min(runs, key=lambda run: score(finished[run.name], TARGETS[given.data], run.seconds))
    return best.factor, best.momentum


def reported(given: argparse.Namespace) -> list[SpeedRun]:
    """Return the runs of the table: those methods that are tuned, seed by seed."""
    chosen = {name: tuned(given, name) for name in given.methods}
    found = [
        SpeedRun(cluster_of(given, name), name, given.data, seed, *best, network=given.network)
        for seed in range(TUNING_SEED + 1, TUNING_SEED + 1 + given.seeds)
        for name, best in chosen.items()
        if best is not None
    ]
    if given.limits:
        return [replace(run, without=each) for run in found if run.method == PRESET for each in LIMITS]
    return found


def table(given: argparse.Namespace) -> str:
    """Return the times to the accuracies in Markdown, and how much sooner than the fastest device alone they are."""
    finished, targets = results(given.out), TARGETS[given.data]
    heads = ["method", "rate", "momentum", "seeds"]
    for target in targets:
        heads += [f"seconds to {target:g}", "alone ÷ this"]
    times: dict[tuple[str, str, float, float], list[list[float]]] = {}
    for run in reported(given):
        if run.name in finished:
            key = run.method, run.without, run.factor, run.momentum
            times.setdefault(key, []).append([time_to(finished[run.name], target) for target in targets])
    alone = next((list(zip(*seeds, strict=True)) for key, seeds in times.items() if key[0] == ALONE), None)
    rows = []
    for (method, without, factor, momentum), seeds in times.items():
        cells = [method if without == "whole" else without, f"× {factor:g}", f"{momentum:g}", str(len(seeds))]
        for index, values in enumerate(zip(*seeds, strict=True)):
            missed = values.count(math.inf)
            cells.append(f"missed by {missed} of {len(values)}" if missed else spread(values, 1))
            ratio = statistics.fmean(alone[index]) / statistics.fmean(values) if alone else math.nan
            cells.append("–" if missed or not math.isfinite(ratio) else f"{ratio:.2f}")
        rows.append(cells)
    return markdown_table(heads, rows)


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of this program."""
    parser = simulation_parser(__doc__, "fastest-device", 3, "how many are reported")
    parser.add_argument("--cluster", choices=("paper", "equal", "demo"), default="paper")
    parser.add_argument("--data", choices=tuple(TARGETS), default="iid")
    parser.add_argument(
        "--network",
        choices=tuple(GRADIENT),
        default=NARROW,
        help="of the runs that are reported (default: %(default)s)",
    )
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS), metavar="METHOD")
    parser.add_argument("--tune", action="store_true", help="find learning rates and momenta")
    parser.add_argument("--limits", action="store_true", help="take the preset's parts away, one at a time")
    return parser.parse_args(words)


def main() -> int:
    """Carry out the runs and print the table."""
    given = parse_arguments()
    chosen = [run for name in given.methods for run in tuning(given, name)] if given.tune else reported(given)
    if not chosen:
        raise ExpectedError(f"none of {', '.join(given.methods)} can be reported; run this program with --tune first")
    if given.list:
        return listed(chosen, given, SpeedRun.planned)
    if given.tune:
        write_held_out(given.out)
    kept = within_budget(chosen, given, SpeedRun.planned)
    succeeded = carry_out(kept, given)
    if given.tune:
        for name in given.methods:
            best = tuned(given, name)
            print(f"{name}: not all tried" if best is None else f"{name}: rate × {best[0]:g}, momentum {best[1]:g}")
        return 0 if succeeded else 1
    name = f"table-{given.cluster}-{given.data}{'-limits' if given.limits else ''}.md"
    write_table(given.out / name, table(given))
    return 0 if succeeded else 1


if __name__ == "__main__":
    program.run(main)
