"""How accurate is the best setting for data by class, beside itself with data dealt out evenly?

    python benchmarks/data_by_class.py --tune
    python benchmarks/data_by_class.py [--seeds 3] [--jobs 2] [--budget CORE-HOURS] [--list]

Data by class pull the workers' models apart. What keeps them together is group norm, and exchanges
that come often: `--preset skewed-data`, with one exchange of each host, trains a narrow ResNet-18
on the paper's cluster (clusters/paper-narrow.yaml) in virtual time. The learning rate falls to 0.3
and 0.1 of itself after 60 % and 80 % of the samples. Devices take as long for a batch, and messages
are as large, as with the full ResNet-18; gradients are real; evaluations, one in about four seconds
of virtual time, take none of it.

`--tune` tries multiples of the published learning rate, momentum of the local steps, and exchanges
after four local iterations, with seed 0 and data by class, on 55,000 of the
training images, and tests on the other 5,000. Chosen is the setting with the best mean accuracy of
the last tenth. The runs that are reported have the seeds 1, 2 and so on, all training images and
the test set, and take two, five and ten minutes of virtual time (ten with one seed only); each is
done by class and with data dealt out evenly. Two more, of two minutes by class, keep the two
processors and their data in (`--leave-out none`), updates weighted by samples and alike. They are
compared with synchronous SGD over two hours, by class and with group norm, of
benchmarks/reproduce_paper.py --horizon, which has one seed.

A run that is done is not done again; `--out` has runs.json and table.md. `--figure` draws the
accuracies over time, on a logarithmic scale, beside ESync's, synchronous SGD's and sequential SGD's.
"""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import markdown_table, mean_of_last, spread_or_value, time_to, write_table
from harness.held_out import TUNING_SEED, write_held_out
from harness.paper_runs import (
    BATCH_SIZE,
    GRADIENT,
    NARROW,
    NARROW_GROUP_NORM,
    OVERHEAD,
    TRAINING_IMAGES,
    narrow_cluster,
)
from harness.simulations import PARTITIONS, RATE, carry_out, listed, results, simulate, within_budget
from harness.simulations import parser as simulation_parser

FLAGS = ("--preset=skewed-data", "--lr-decay=0.6:0.3,0.8:0.1")
#: The slowest device's local iterations between two exchanges: the preset's own choice.
ITERATIONS: int | None = None
#: What that is on the paper's cluster.
USUAL = 8
#: Multiples of the published learning rate, momenta, and such iterations, that are tried.
TRIED = ((0.5, 0.0, ITERATIONS), (1, 0.0, ITERATIONS), (2, 0.0, ITERATIONS), (0.1, 0.9, ITERATIONS), (1, 0.0, 4))
#: Passes through the training set, of all workers together, while tuning: 82 s.
TUNING_EPOCHS = 12
#: The same of the runs that are reported: two, five and ten minutes.
LENGTHS = (16, 40, 80)
#: That of which only the first seed is run: one costs a core-hour.
ONE_SEED = 80
#: Local iterations of the slowest device between two evaluations.
EVALUATE_EVERY = 128
#: Further cost of evaluations and exchanges ÷ that of gradients.
BESIDES = 1.7
#: Accuracies whose times are in the table, and the seconds whose accuracies are.
TARGETS = (0.8, 0.85, 0.88)
TIMES = (30, 60, 120, 300, 600)
#: Seconds of virtual time around a time whose evaluations are averaged.
AROUND = 10.0
#: Synchronous SGD with group norm over two hours.
COMPARED = program.RESULTS / "reproduction"
#: Kind of data → the runs over two hours that are drawn: label → name and style of the line.
DRAWN: dict[str, dict[str, tuple[str, str]]] = {
    data: {
        "ESync, batch norm": (f"{NARROW}-esync-{data}", "tab:blue"),
        "synchronous SGD, batch norm": (f"{NARROW}-sync-{data}", "tab:orange"),
        "synchronous SGD, group norm": (f"{NARROW_GROUP_NORM}-sync-{data}", "tab:red"),
        "one GPU alone, all data": (f"{NARROW}-local-iid-x2", "0.5"),
    }
    for data in PARTITIONS
}


@dataclass(frozen=True)
class ByClassRun:
    """One simulation.

    Attributes:
        data: "iid" or "niid".
        seed: seed of data and weights.
        factor: multiple of the published learning rate.
        momentum: of the local steps.
        iterations: local iterations of the slowest device between two exchanges.
        held_out: whether it is tested on training images that are kept back.
        epochs: passes through the training set, of all workers together.
        all_in: weighting of updates where devices below 1 % of the speed keep their data and take
            part; "": they are left out.
    """

    data: str
    seed: int
    factor: float
    momentum: float = 0.0
    iterations: int | None = ITERATIONS
    held_out: bool = False
    epochs: int = TUNING_EPOCHS
    all_in: str = ""

    @property
    def name(self) -> str:
        """Stem of its files."""
        more = f"-m{self.momentum:g}" if self.momentum else ""
        more += f"-{self.iterations}-iterations" if self.iterations != ITERATIONS else ""
        more += f"-{self.epochs}-epochs" if self.epochs in LENGTHS[1:] else ""
        more += f"-all-in-{self.all_in}" if self.all_in else ""
        return f"fast-{self.data}-x{self.factor:g}{more}-seed{self.seed}{'-held-out' if self.held_out else ''}"

    def words(self, given: argparse.Namespace) -> list[str]:
        """Return the command line."""
        file = narrow_cluster("paper", {"per_host": True}, given.out)
        words = [*FLAGS, f"--network={NARROW}"]
        words += [f"--local-lr={RATE * self.factor:g}", f"--seed={self.seed}", f"--epochs={self.epochs}"]
        words += [f"--momentum={self.momentum:g}"] if self.momentum else []
        words += ["--leave-out=none", f"--weighting={self.all_in}"] if self.all_in else []
        words += [f"--slowest-iterations={self.iterations}"] if self.iterations != ITERATIONS else []
        words += [f"--partition={PARTITIONS[self.data]}", "--no-logs"]
        words += [f"--eval-duration={EVALUATE_EVERY // (self.iterations or USUAL)}"]
        return simulate(file, self, given.out, *words, held_out=self.held_out)

    @property
    def label(self) -> str:
        """Name of its row in the table."""
        all_in = f", all devices in, --weighting {self.all_in}" if self.all_in else ""
        return f"preset skewed-data{all_in}, {self.epochs} epochs, {self.data}"

    def planned(self) -> float:
        """Return the core-seconds that it costs by estimate."""
        gradients = self.epochs * TRAINING_IMAGES / BATCH_SIZE
        return OVERHEAD * BESIDES * GRADIENT[NARROW_GROUP_NORM] * gradients


def tuning() -> list[ByClassRun]:
    """Return the runs that find the learning rate, the momentum and the local iterations."""
    return [ByClassRun("niid", TUNING_SEED, *each, held_out=True) for each in TRIED]


def tuned(out: Path) -> ByClassRun | None:
    """Return the best of these runs; None: not all have been carried out."""
    finished, runs = results(out), tuning()
    if any(run.name not in finished for run in runs):
        return None
    return max(runs, key=lambda run: mean_of_last(finished[run.name], 0.1))


def reported(best: ByClassRun, seeds: int) -> list[ByClassRun]:
    """Return the runs of the table, the short ones first, seed by seed."""
    runs = [
        replace(best, data=data, seed=TUNING_SEED + number, held_out=False, epochs=epochs)
        for epochs in LENGTHS
        for number in range(1, 2 if epochs == ONE_SEED else seeds + 1)
        for data in ("niid", "iid")
    ]
    return [*runs, *(replace(runs[0], all_in=weighting) for weighting in ("samples", "uniform"))]


def accuracy_at(result: Mapping[str, Any], seconds: float) -> float | None:
    """Return the mean accuracy of the evaluations around a time; None: there is none."""
    around = [each for _, when, each in result["accuracies"] if abs(when - seconds) <= AROUND]
    return statistics.fmean(around) if around else None


def table(out: Path, best: ByClassRun, seeds: int) -> str:
    """Return the results in Markdown, beside those of synchronous SGD."""
    finished = results(out)
    groups: dict[str, list[Any]] = {}
    for run in reported(best, seeds):
        if run.name in finished:
            groups.setdefault(run.label, []).append(finished[run.name])
    of_sgd = results(COMPARED)
    for data in ("niid", "iid"):
        name = f"{NARROW_GROUP_NORM}-sync-{data}"
        groups[f"synchronous SGD, group norm, {data}"] = [of_sgd[name]] if name in of_sgd else []
    heads = ["", "seeds", *(f"seconds to {each:g}" for each in TARGETS), *(f"after {each} s" for each in TIMES)]
    heads += ["seconds in all", "last tenth", "final"]
    rows = []
    for name, group in groups.items():
        if not group:
            continue
        cells = [name, str(len(group))]
        for target in TARGETS:
            reached = [at for result in group if (at := time_to(result, target)) < float("inf")]
            cells.append(spread_or_value(reached, 1) if len(reached) == len(group) else f"by {len(reached)}")
        for when in TIMES:
            known = [each for result in group if (each := accuracy_at(result, when)) is not None]
            cells.append(spread_or_value(known, 3) if len(known) == len(group) else "–")
        cells.append(spread_or_value([result["seconds"] for result in group], 0))
        cells.append(spread_or_value([mean_of_last(result, 0.1) for result in group], 3))
        cells.append(spread_or_value([result["final_accuracy"] for result in group], 3))
        rows.append(cells)
    return markdown_table(heads, rows)


def draw(out: Path, best: ByClassRun, seeds: int, file: Path) -> None:
    """Draw the accuracies over time, by class on the left and dealt out evenly on the right."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    finished, compared = results(out), results(COMPARED)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
    for panel, (data, title) in zip(axes, (("niid", "by class"), ("iid", "dealt out evenly")), strict=True):
        for label, (name, colour) in DRAWN[data].items():
            if name in compared:
                panel.plot(*_curve(compared[name]), color=colour, linewidth=1, label=label)
        shown = [run for run in reported(best, seeds) if run.data == data and not run.all_in]
        for number, run in enumerate(run for run in shown if run.name in finished):
            label = "" if number else "--preset skewed-data, each run"
            panel.plot(*_curve(finished[run.name]), color="tab:purple", linewidth=1.4, alpha=0.8, label=label)
        panel.set(title=title, xlabel="virtual time (s)", xscale="log", xlim=(3, 7200), ylim=(0, 1))
        panel.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy")
    axes[1].legend(loc="lower right", fontsize=8)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _curve(result: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Return the times and accuracies of a run's evaluations."""
    return [seconds for _, seconds, _ in result["accuracies"]], [each for *_, each in result["accuracies"]]


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of this program."""
    parser = simulation_parser(__doc__, "skewed-data", 3, "how many are reported")
    parser.add_argument("--tune", action="store_true", help="find learning rate, momentum and local iterations")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="PNG file of the accuracies over time")
    return parser.parse_args(words)


def main() -> int:
    """Carry out the runs and print the table."""
    given = parse_arguments()
    best = tuned(given.out)
    if not given.tune and best is None:
        sys.exit("error: the learning rate has not been tuned; run this program with --tune first")
    chosen = tuning() if given.tune or best is None else reported(best, given.seeds)
    if given.list:
        return listed(chosen, given, ByClassRun.planned)
    if given.tune:
        write_held_out(given.out)
    kept = within_budget(chosen, given, ByClassRun.planned)
    succeeded = carry_out(kept, given)
    if given.tune:
        best = tuned(given.out)
        if best is None:
            print("not all tried")
        else:
            print(f"rate × {best.factor:g}, momentum {best.momentum:g}, {best.iterations} local iterations")
        return 0 if succeeded else 1
    assert best is not None
    write_table(given.out / "table.md", table(given.out, best, given.seeds))
    if given.figure is not None:
        draw(given.out, best, given.seeds, given.figure)
    return 0 if succeeded else 1


if __name__ == "__main__":
    program.run(main)
