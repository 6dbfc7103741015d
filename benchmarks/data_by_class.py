"""Data that stay where they are: how soon is an accuracy reached, and with which recall of each class?

    python benchmarks/data_by_class.py --tune [--case NAME] [--methods METHOD ...]
    python benchmarks/data_by_class.py [--case NAME] [--methods METHOD ...] [--seeds 3] [--minutes 10]
    python benchmarks/data_by_class.py --seeds 1 --minutes 60
    (each with [--jobs 2] [--budget CORE-HOURS] [--list])

A narrow ResNet-18 with group norm trains in virtual time with real gradients; devices take as long for a
batch, and messages are as large, as with the full ResNet-18; evaluations take no time. All devices take
part and keep their data. Cases:

* `class`: the paper's cluster, each of six devices has its own classes, two of them are a hundred times slower.
* `dirichlet-0.1`, `dirichlet-0.5`: the same, shares drawn from a Dirichlet distribution.
* `pair`: a device of 0.03 s has eight classes, one of 0.3 s the two others.

`--tune` tries at most nine settings of each method (rate, momentum, interval) for five minutes with seed 0
on 55,000 of the training images of the case `class`, and tests on the other 5,000. Chosen is the one with
the highest mean accuracy of the last fifth. The runs that are reported have the seeds 1, 2 and so on, all
training images and the test set.

A run that is done is not done again; `--out` has runs.json and a table for each case and length.
`--figure` draws the accuracies over time.
"""

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import markdown_table, mean_of_last, spread_or_value, time_to, write_table
from harness.held_out import TUNING_SEED
from harness.paper_runs import BATCH_SIZE, GRADIENT, NARROW_GROUP_NORM, OVERHEAD, narrow_cluster
from harness.simulations import RATE, carry_out_methods, results, simulate
from harness.simulations import parser as simulation_parser

#: Accuracies whose times are compared.
TARGETS = (0.80, 0.842, 0.864)
#: Minutes of the runs that find the settings.
TUNING_MINUTES = 5
#: Seconds of virtual time between two evaluations, about.
EVALUATE_EVERY = 6.0
#: Share of a run whose evaluations are averaged.
LAST = 0.2
SYNC, SYNC_2BIT, LOCAL_SGD, SCAFFOLD, ESYNC, TIERED, PRESET = METHODS = (
    "sync",
    "sync-2bit",
    "local-sgd",
    "scaffold",
    "esync",
    "tiered",
    "preset",
)
#: Method → name in the table and in the figure, and colour.
LABELS = {
    SYNC: ("synchronous SGD, float32", "tab:red"),
    SYNC_2BIT: ("synchronous SGD, 2 bit", "tab:orange"),
    LOCAL_SGD: ("local SGD, 2 bit", "tab:green"),
    SCAFFOLD: ("SCAFFOLD, float32", "tab:brown"),
    ESYNC: ("ESync", "tab:blue"),
    TIERED: ("tiered ESync, 2 bit", "tab:pink"),
    PRESET: ("--preset skewed-data", "tab:purple"),
}
#: Method → its flags.
FLAGS = {
    SYNC: ("--mode=sync",),
    SYNC_2BIT: ("--mode=sync", "--compression=2bit"),
    LOCAL_SGD: ("--mode=local-sgd", "--compression=2bit"),
    SCAFFOLD: ("--mode=scaffold",),
    ESYNC: ("--mode=esync",),
    TIERED: ("--mode=tiered", "--leave-out=none", "--compression=2bit", "--overlap"),
    PRESET: ("--preset=skewed-data",),
}
#: Method → seconds of a round on the paper's cluster, and samples per second of all devices, about.
ROUNDS = {
    SYNC: (6.55, 59),
    SYNC_2BIT: (3.7, 104),
    LOCAL_SGD: (14.0, 104),
    SCAFFOLD: (20.0, 80),
    ESYNC: (7.0, 3700),
    TIERED: (0.3, 6000),
    PRESET: (0.4, 1100),
}
#: Multiples of the published learning rate, and momenta.
PAIRS = ((1, 0.0), (4, 0.0), (0.5, 0.9))
#: Method → the settings that are tried: multiple of the published rate, momentum, interval.
TRIED: dict[str, tuple[tuple[float, float, int], ...]] = {
    SYNC: tuple((factor, 0.0, 1) for factor in (0.25, 0.5, 1, 2, 4))
    + tuple((factor, 0.9, 1) for factor in (0.125, 0.25, 0.5, 1)),
    LOCAL_SGD: tuple((*pair, interval) for interval in (1, 4, 16) for pair in PAIRS),
    SCAFFOLD: tuple((factor, 0.0, interval) for interval in (1, 4, 16) for factor in (1, 2, 4)),
    ESYNC: tuple((factor, 0.0, 1) for factor in (0.5, 1, 2, 4))
    + tuple((factor, 0.9, 1) for factor in (0.1, 0.25, 0.5)),
    TIERED: ((1, 0.0, 4), (2, 0.0, 4)),  # neither recognizes the classes of the slow devices
    PRESET: tuple((factor, 0.0, 8) for factor in (1, 2, 4)) + tuple((factor, 0.9, 8) for factor in (0.25, 0.5)),
}
TRIED[SYNC_2BIT] = TRIED[SYNC]
#: Method → the flag of its interval, if it has one.
INTERVALS = {
    LOCAL_SGD: "local-iterations",
    SCAFFOLD: "local-iterations",
    TIERED: "slowest-iterations",
    PRESET: "decay-iterations",
}


@dataclass(frozen=True)
class Case:
    """Devices and shares of the data.

    Attributes:
        partition: value of --partition.
        changes: of the description of the paper's cluster.
        round_time: seconds of a synchronous round in 2 bits, about.
    """

    partition: str
    changes: Mapping[str, Any]
    round_time: float = 3.7


_PER_HOST: Mapping[str, Any] = {"per_host": True}
CASES = {
    "class": Case("class", _PER_HOST),
    "dirichlet-0.1": Case("dirichlet:0.1", _PER_HOST),
    "dirichlet-0.5": Case("dirichlet:0.5", _PER_HOST),
    "pair": Case(
        "class:4,1",
        {
            "workers": [
                {"host": "cloud1", "device": "gpu0", "simulate": {"step_time": 0.03}},
                {"host": "cloud3", "device": "gpu0", "simulate": {"step_time": 0.3}},
            ],
        },
        0.37,
    ),
}


@dataclass(frozen=True)
class ByClassRun:
    """One simulation.

    Attributes:
        case: key of CASES.
        method: one of METHODS.
        factor: multiple of the published learning rate.
        momentum: of the optimizer.
        interval: local iterations of the slowest device in a round; of the preset --decay-iterations.
        seed: seed of data and weights.
        minutes: of virtual time.
        held_out: whether it is tested on training images that are kept back.
    """

    case: str
    method: str
    factor: float
    momentum: float
    interval: int
    seed: int
    minutes: float
    held_out: bool = False

    @property
    def name(self) -> str:
        """Stem of its files."""
        setting = f"x{self.factor:g}-m{self.momentum:g}-h{self.interval}"
        more = "-held-out" if self.held_out else ""
        return f"{self.case}-{self.method}-{setting}-{self.minutes:g}min-seed{self.seed}{more}"

    @property
    def setting(self) -> str:
        """The setting as the table names it."""
        interval = f", --{INTERVALS[self.method]} {self.interval}" if self.method in INTERVALS else ""
        return f"rate × {self.factor:g}, momentum {self.momentum:g}{interval}"

    def words(self, options: argparse.Namespace) -> list[str]:
        """Return the command line."""
        case = CASES[self.case]
        file = narrow_cluster(self.case, case.changes, options.out)
        rate = "learning-rate" if self.method in (SYNC, SYNC_2BIT) else "local-lr"
        words = [*FLAGS[self.method], f"--network={NARROW_GROUP_NORM}", f"--partition={case.partition}"]
        words += [f"--{rate}={RATE * self.factor:g}", f"--seed={self.seed}", f"--max-time={60 * self.minutes:g}"]
        words += [f"--momentum={self.momentum:g}"] if self.momentum else []
        words += [f"--{INTERVALS[self.method]}={self.interval}"] if self.method in INTERVALS else []
        words += [f"--eval-duration={max(1, round(self.evaluate_every / self.round_time))}"]
        words += ["--test-images=2500", "--no-logs"]
        return simulate(file, self, options.out, *words, held_out=self.held_out)

    @property
    def evaluate_every(self) -> float:
        """Seconds of virtual time between two evaluations, about."""
        return EVALUATE_EVERY * max(1, self.minutes / 10)

    @property
    def round_time(self) -> float:
        """Seconds of a round, about."""
        seconds = ROUNDS[self.method][0] * (self.interval if self.method in (LOCAL_SGD, SCAFFOLD) else 1)
        return min(seconds, CASES[self.case].round_time) if self.method in (SYNC_2BIT, PRESET) else seconds

    def planned(self) -> float:
        """Return the core-seconds that it costs by estimate."""
        evaluations = 2500 / max(self.evaluate_every, self.round_time) / 4
        samples = ROUNDS[self.method][1]
        return OVERHEAD * GRADIENT[NARROW_GROUP_NORM] * 60 * self.minutes * (samples + evaluations) / BATCH_SIZE


def tuning(method: str) -> list[ByClassRun]:
    """Return the runs that choose a method's setting."""
    return [
        ByClassRun("class", method, *setting, TUNING_SEED, TUNING_MINUTES, held_out=True) for setting in TRIED[method]
    ]


def tuned(out: Path, method: str) -> ByClassRun | None:
    """Return the best of these runs; None: not all have been carried out."""
    finished, runs = results(out), tuning(method)
    if any(run.name not in finished for run in runs):
        return None
    return max(runs, key=lambda run: mean_of_last(finished[run.name], LAST))


def reported(options: argparse.Namespace) -> list[ByClassRun]:
    """Return the runs of the table: those methods that are tuned, seed by seed."""
    best = [run for method in options.methods if (run := tuned(options.out, method)) is not None]
    return [
        ByClassRun(options.case, run.method, run.factor, run.momentum, run.interval, seed, options.minutes)
        for seed in range(TUNING_SEED + 1, TUNING_SEED + 1 + options.seeds)
        for run in best
    ]


def recalls(result: Mapping[str, Any]) -> list[float]:
    """Return the recall of each class at the end, ascending."""
    return sorted(value for name, value in result["final_parts"].items() if name.startswith("recall/"))


def table(options: argparse.Namespace) -> str:
    """Return the times, accuracies and recalls in Markdown."""
    finished = results(options.out)
    groups: dict[str, list[tuple[ByClassRun, Mapping[str, Any]]]] = {}
    for run in reported(options):
        if run.name in finished:
            groups.setdefault(run.method, []).append((run, finished[run.name]))
    heads = ["", "setting", "seeds", *(f"seconds to {target:g}" for target in TARGETS)]
    heads += ["last fifth", "final", "lowest two recalls", "lowest ÷ mean recall"]
    rows = []
    for method, group in groups.items():
        runs = [result for _, result in group]
        cells = [LABELS[method][0], group[0][0].setting, str(len(runs))]
        for target in TARGETS:
            reached = [at for result in runs if (at := time_to(result, target)) < math.inf]
            all_of_them = len(reached) == len(runs)
            cells.append(spread_or_value(reached, 0) if all_of_them else f"by {len(reached)} of {len(runs)}")
        cells.append(spread_or_value([mean_of_last(result, LAST) for result in runs], 3))
        cells.append(spread_or_value([result["final_accuracy"] for result in runs], 3))
        lowest = [statistics.fmean(recalls(result)[index] for result in runs) for index in (0, 1)]
        mean = statistics.fmean(value for result in runs for value in recalls(result))
        rows.append([*cells, f"{lowest[0]:.2f}, {lowest[1]:.2f}", f"{lowest[0] / mean:.2f}"])
    return markdown_table(heads, rows)


def draw(options: argparse.Namespace, file: Path) -> None:
    """Draw the accuracies over time of the runs with the first seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    finished = results(options.out)
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for run in reported(options):
        if run.name in finished and run.seed == TUNING_SEED + 1:
            label, colour = LABELS[run.method]
            _, seconds, accuracies = zip(*finished[run.name]["accuracies"], strict=True)
            axes.plot(seconds, accuracies, color=colour, linewidth=1.2, label=label)
    axes.set(
        xlabel="virtual time (s)", ylabel="test accuracy", xscale="log", xlim=(5, 60 * options.minutes), ylim=(0, 1)
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of this program."""
    parser = simulation_parser(__doc__, "skewed-data", 3, "how many are reported")
    parser.add_argument("--case", choices=tuple(CASES), default="class")
    parser.add_argument("--minutes", type=float, default=10, help="of virtual time (default: %(default)g)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--tune", action="store_true", help="choose rate, momentum and interval")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="PNG file of the accuracies over time")
    return parser.parse_args(words)


def show(options: argparse.Namespace) -> None:
    """Print the tuned settings, or write the table and draw the figure."""
    if options.tune:
        for method in options.methods:
            best = tuned(options.out, method)
            print(f"{method}: {'not all tried' if best is None else best.setting}")
        return
    write_table(options.out / f"table-{options.case}-{options.minutes:g}min.md", table(options))
    if options.figure is not None:
        draw(options, options.figure)


def main() -> int:
    """Carry out the runs and print the table."""
    options = parse_arguments()
    chosen = [run for method in options.methods for run in tuning(method)] if options.tune else reported(options)
    return carry_out_methods(chosen, options, ByClassRun.planned, show)


if __name__ == "__main__":
    program.run(main)
