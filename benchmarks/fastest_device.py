"""Is `--preset fast`, without a further flag, ever slower than what an expert would have chosen?

    python benchmarks/fastest_device.py --tune [--cluster NAME]
    python benchmarks/fastest_device.py [--cluster NAME] [--seeds 5] [--jobs 1] [--budget CORE-HOURS] [--list]

On each cluster of CLUSTERS, a narrow ResNet-18 trains in virtual time with real gradients; steps and
messages take what they take with the full ResNet-18, evaluations take no time. Times to three
accuracies are compared:

* `local`: the fastest device alone with all of the data. It is run on a device of 0.03 s; another
  device's times are in proportion. `averaged`: the same with `--weight-average polynomial`.
* `sync` and `esync`, as published.
* `best`: the best of a grid of interval × compression × devices that take part, 4 to 10 settings.
* `fast`: the preset.

`--tune` tries the settings of each method with seed 0 on 55,000 of the training images, and tests on
the other 5,000. Chosen is the setting with the lowest geometric mean of the times to the accuracies;
one that is not reached counts as twice the time of the run. The runs that are reported have the seeds
1, 2 and so on, all training images, and the test set. `--network resnet18-v1` reports ResNet-18 itself.

A run that is done is not done again; `--out` has runs.json and a table for each cluster.
"""

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from harness import program
from harness.figures import markdown_table, mean_ratio, mean_time, spread_or_missed, time_to, write_table
from harness.held_out import TUNING_SEED
from harness.paper_runs import BATCH_SIZE, EVALUATION, GRADIENT, NARROW, OVERHEAD, TEST_IMAGES, narrow_cluster
from harness.simulations import RATE, carry_out_methods, results, simulate
from harness.simulations import parser as simulation_parser

#: Accuracies whose times are compared.
TARGETS = (0.85, 0.88, 0.90)
ALONE, AVERAGED, BEST, PRESET = "local", "averaged", "best", "fast"
#: Methods of one device.
ONE_DEVICE = (ALONE, AVERAGED)
#: Seconds of a batch on the device of the runs of `local`.
ALONE_STEP = 0.03
#: Compressions of the grid.
COMPRESSIONS = ("fp16", "2bit")


@dataclass(frozen=True)
class Cluster:
    """A cluster.

    Attributes:
        steps: seconds of a batch on each device.
        devices: devices of a host, in order.
        bandwidth: of each host.
        intervals: the grid's iterations of the slowest device in a round without the slow ones: about 4, 8
            and 16 of the fastest device, where the devices allow it.
        slow: ranks that a part of the grid leaves out, if any.
        slow_intervals: the grid's iterations of the slowest device in a round with the slow ones.
    """

    steps: tuple[float, ...]
    devices: int
    bandwidth: str
    intervals: tuple[int, ...]
    slow: tuple[int, ...] = ()
    slow_intervals: tuple[int, ...] = ()

    @cached_property
    def speed(self) -> float:
        """Samples per second of all devices together."""
        return sum(BATCH_SIZE / step for step in self.steps)

    @property
    def limit(self) -> float:
        """Speed of all devices over that of the fastest one."""
        return self.speed * min(self.steps) / BATCH_SIZE

    @property
    def changes(self) -> dict[str, Any]:
        """What a description has of this cluster."""
        workers = [
            {
                "host": f"host{rank // self.devices}",
                "device": f"gpu{rank % self.devices}",
                "simulate": {"step_time": step},
            }
            for rank, step in enumerate(self.steps)
        ]
        return {"hosts": {}, "workers": workers, "network": {"bandwidth": self.bandwidth, "latency": "0.2ms"}}


#: The cluster with the slowest network.
SLOWEST = "paper-100Mbit"
_PAPER = (0.03, 0.03, 3.5, 0.03, 0.03, 3.5)
CLUSTERS = {
    "paper": Cluster(_PAPER, 3, "1Gbit", (4, 8, 16), (2, 5), (1,)),
    SLOWEST: Cluster(_PAPER, 3, "100Mbit", (8, 16, 32), (2, 5), (1,)),
    "equal": Cluster((0.03,) * 4, 2, "10Gbit", (4, 8, 16)),
    "generations": Cluster((0.02,) * 4 + (0.06,) * 4, 2, "10Gbit", (4, 8, 16), (4, 5, 6, 7), (1, 3)),
    "pair": Cluster((0.03, 0.3), 1, "1Gbit", (1, 2)),
    "spread": Cluster(tuple(0.03 * k for k in range(1, 9)), 1, "1Gbit", (1, 2, 4), (4, 5, 6, 7), (1, 2)),
}


@dataclass(frozen=True)
class Setting:
    """The flags of a method that are tried.

    Attributes:
        name: as part of a run's name.
        flags: of the simulation.
        interval: iterations of the slowest device in a round.
    """

    name: str
    flags: tuple[str, ...]
    interval: int = 1


def _rates(*pairs: tuple[float, float], mode: str) -> list[Setting]:
    rate = "--learning-rate" if mode in ("local", "sync") else "--local-lr"
    return [
        Setting(
            f"x{factor:g}-m{momentum:g}", (f"--mode={mode}", f"{rate}={RATE * factor:g}", f"--momentum={momentum:g}")
        )
        for factor, momentum in pairs
    ]


def _tiered(interval: int, compression: str, slow: Sequence[int] = (), leave_out: bool = True) -> Setting:
    """Return a setting of mode tiered."""
    out = "none" if not leave_out else ",".join(map(str, slow)) or "none"
    flags = ("--mode=tiered", f"--leave-out={out}", f"--slowest-iterations={interval}", f"--compression={compression}")
    name = f"h{interval}-{compression}{'-all' if slow and not leave_out else ''}"
    return Setting(name, (*flags, "--overlap", "--momentum=0.9"), interval)


def settings(method: str, cluster: Cluster) -> list[Setting]:
    """Return the settings of a method that are tried on a cluster."""
    if method == ALONE:
        return _rates((0.5, 0), (1, 0), (2, 0), (4, 0), (1, 0.9), mode="local")
    if method == AVERAGED:
        average = ("--weight-average=polynomial",)
        return [replace(s, flags=(*s.flags, *average)) for s in _rates((0.5, 0), (1, 0), (2, 0), mode="local")]
    if method in ("sync", "esync"):
        return _rates((1, 0), (4, 0), (1, 0.9), mode=method)
    if method == BEST:
        fast, whole = product(cluster.intervals, COMPRESSIONS), product(cluster.slow_intervals, COMPRESSIONS)
        return [_tiered(*pair, cluster.slow) for pair in fast] + [
            _tiered(*pair, cluster.slow, leave_out=False) for pair in whole
        ]
    return [Setting("preset", ("--preset=fast",))]


METHODS = (*ONE_DEVICE, "sync", "esync", BEST, PRESET)


@dataclass(frozen=True)
class SpeedRun:
    """One simulation.

    Attributes:
        cluster: key of CLUSTERS.
        method: one of METHODS.
        setting: of the method.
        seed: seed of data and weights.
        held_out: whether it is tested on training images that are kept back.
        network: its name.
    """

    cluster: str
    method: str
    setting: Setting
    seed: int
    held_out: bool = False
    network: str = NARROW

    @property
    def name(self) -> str:
        """Stem of its files."""
        more = "-held-out" if self.held_out else ""
        more += f"-{self.network}" if self.network != NARROW else ""
        return f"{self.cluster}-{self.method}-{self.setting.name}-seed{self.seed}{more}"

    def words(self, options: argparse.Namespace) -> list[str]:
        """Return the command line."""
        changes = CLUSTERS[self.cluster].changes
        if self.method == BEST:
            changes["per_host"] = CLUSTERS[self.cluster].devices > 1
        file = narrow_cluster(self.cluster, changes, options.out)
        words = [*self.setting.flags, f"--network={self.network}", f"--seed={self.seed}"]
        words += [f"--eval-duration={self.every}", f"--max-time={self.seconds:g}"]
        words += [f"--target-accuracy={TARGETS[-1]}", "--no-logs"]
        return simulate(file, self, options.out, *words, held_out=self.held_out)

    @property
    def every(self) -> int:
        """Return the rounds between two evaluations: some 24 iterations of the slowest device that takes part."""
        if self.method == "sync":
            return 20
        preset = 1 if self.cluster == SLOWEST else 6  # of its rounds, which last eight iterations elsewhere
        methods = {ALONE: 32, AVERAGED: 32, "esync": 1, PRESET: preset}
        return methods.get(self.method, max(1, 24 // self.setting.interval))

    @property
    def seconds(self) -> float:
        """Return the virtual seconds after which it ends: those in which the devices do 700,000 samples."""
        if self.method in ONE_DEVICE:
            return 300
        maximum = 700_000 / CLUSTERS[self.cluster].speed
        return maximum * (40 if self.method == "sync" else 2 if self.cluster == SLOWEST else 1.2)

    def planned(self) -> float:
        """Return the core-seconds that it costs by estimate, at most."""
        samples = 640_000 if self.method in ONE_DEVICE else 210_000 if self.method == "sync" else 700_000
        return OVERHEAD * GRADIENT[self.network] * samples * (1 + EVALUATION * TEST_IMAGES / 10_000) / BATCH_SIZE


def cluster_of(options: argparse.Namespace, method: str) -> str:
    """Return the cluster of a method's runs: one device alone is run on the paper's."""
    return "paper" if method in ONE_DEVICE else str(options.cluster)


def tuning(options: argparse.Namespace, method: str) -> list[SpeedRun]:
    """Return the runs that choose a method's setting."""
    cluster = cluster_of(options, method)
    return [
        SpeedRun(cluster, method, setting, TUNING_SEED, held_out=True)
        for setting in settings(method, CLUSTERS[cluster])
    ]


def score(result: Mapping[str, Any], seconds: float) -> float:
    """Return the geometric mean of the times to the targets; a target that was not reached counts twice the time."""
    return mean_time((time_to(result, target) for target in TARGETS), seconds)


def tuned(options: argparse.Namespace, method: str) -> Setting | None:
    """Return the best setting of a method; None: not all have been tried."""
    finished, runs = results(options.out), tuning(options, method)
    if len(runs) == 1:
        return runs[0].setting
    if any(run.name not in finished for run in runs):
        return None
    return min(runs, key=lambda run: score(finished[run.name], run.seconds)).setting


def reported(options: argparse.Namespace) -> list[SpeedRun]:
    """Return the runs of the table: those methods that are tuned, seed by seed."""
    chosen = {name: tuned(options, name) for name in options.methods}
    return [
        SpeedRun(cluster_of(options, name), name, setting, seed, network=options.network)
        for seed in range(TUNING_SEED + 1, TUNING_SEED + 1 + options.seeds)
        for name, setting in chosen.items()
        if setting is not None
    ]


def times(options: argparse.Namespace, run: SpeedRun, result: Mapping[str, Any]) -> list[float]:
    """Return the seconds to the targets, of one device alone those of the cluster's fastest."""
    scale = min(CLUSTERS[options.cluster].steps) / ALONE_STEP if run.method in ONE_DEVICE else 1.0
    return [scale * time_to(result, target) for target in TARGETS]


def table(options: argparse.Namespace) -> str:
    """Return the times to the accuracies in Markdown, beside the fastest device alone and the best of the grid."""
    finished = results(options.out)
    heads = ["method", "setting", "seeds"]
    for target in TARGETS:
        heads += [f"seconds to {target:g}", "alone ÷ this"]
    measured: dict[tuple[str, str], dict[int, list[float]]] = {}
    for run in reported(options):
        if run.name in finished:
            seconds = times(options, run, finished[run.name])
            measured.setdefault((run.method, run.setting.name), {})[run.seed] = seconds
    alone = next((seeds for (method, _), seeds in measured.items() if method == ALONE), None)
    best = next((seeds for (method, _), seeds in measured.items() if method == BEST), None)
    rows = []
    for (method, setting), seeds in measured.items():
        cells = [method, setting, str(len(seeds))]
        for index in range(len(TARGETS)):
            values = [seconds[index] for seconds in seeds.values()]
            cells.append(spread_or_missed(values))
            ratio = statistics.fmean(s[index] for s in alone.values()) / statistics.fmean(values) if alone else math.nan
            cells.append("–" if math.inf in values or not math.isfinite(ratio) else f"{ratio:.2f}")
        rows.append([*cells, against(seeds, best)])
    return markdown_table([*heads, "this ÷ best"], rows)


def against(seeds: Mapping[int, Sequence[float]], best: Mapping[int, Sequence[float]] | None) -> str:
    """Return the geometric mean over common seeds and accuracies of the times over those of the grid's best."""
    if best is None:
        return "–"
    pairs = [pair for seed in seeds.keys() & best.keys() for pair in zip(seeds[seed], best[seed], strict=True)]
    return mean_ratio(pairs)


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of this program."""
    parser = simulation_parser(__doc__, "fastest-device", 5, "how many are reported")
    parser.add_argument("--cluster", choices=tuple(CLUSTERS), default="paper")
    parser.add_argument(
        "--network",
        choices=tuple(GRADIENT),
        default=NARROW,
        help="of the runs that are reported (default: %(default)s)",
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--tune", action="store_true", help="choose the settings")
    return parser.parse_args(words)


def show(options: argparse.Namespace) -> None:
    """Print the tuned settings, or write the table."""
    if options.tune:
        for name in options.methods:
            best = tuned(options, name)
            print(f"{name}: {'not all tried' if best is None else best.name}")
        return
    write_table(options.out / f"table-{options.cluster}.md", table(options))


def main() -> int:
    """Carry out the runs and print the table."""
    options = parse_arguments()
    chosen = [run for name in options.methods for run in tuning(options, name)] if options.tune else reported(options)
    return carry_out_methods(chosen, options, SpeedRun.planned, show)


if __name__ == "__main__":
    program.run(main)
