"""How accurate are sparse exchanges with a ResNet-18?

    python benchmarks/sparse_resnet.py [--seeds 3] [--jobs 2] [--budget CORE-HOURS] [--list]

The methods of the DGS paper's Table 3 train a ResNet-18 of a quarter of the channels on
Fashion-MNIST: 1 to 32 equal simulated workers, whose devices differ by 10 % from iteration to
iteration, with ASGD, GD-async, DGC-async and DGS, and one alone with momentum SGD. All have the same
number of samples, batches of 64 on every worker, the published learning rate of ESync (0.0005 on the
sum over a batch), a tenth of it after 60 % of the samples and a hundredth after 80 %, momentum 0.7
where the method has momentum, and weight decay 0.0005. Workers send 1 % of every tensor. The network
costs next to nothing: it is a matter of accuracy only.

With 16 workers one thing is taken away at a time: momentum, a part of the rate, the rate's fall,
or staleness, that is, the other workers (one worker). "Both ways": the server's answers have 1 %, too.

benchmarks/sparse_accuracy.py does the same with a perceptron.

A run that is done is not done again; `--out` has runs.json and table.md.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import program
from harness.figures import markdown_table, mean_of_last, spread_or_value, write_table
from harness.paper_runs import BATCH_SIZE, NARROW, TRAINING_IMAGES
from harness.simulations import RATE, carry_out, listed, results, simulate, within_budget, write_description
from harness.simulations import parser as simulation_parser

from esync.arguments import count

ALONE = "momentum SGD"
_MOMENTUM, _ALL_TENSORS = "--momentum=0.7", "--sparse-dense-below=0"
#: After which shares of the samples the rate has which factor, as published.
FALL = "--lr-decay=0.6:0.1,0.8:0.01"
_DGC, _DGS = (FALL, "--mode=dgc-async", _ALL_TENSORS), (FALL, "--mode=dgs", _ALL_TENSORS)
#: Method of Table 3 → flags.
TABLE_3: dict[str, tuple[str, ...]] = {
    "ASGD": (FALL, "--mode=async"),
    "GD-async": (FALL, "--mode=gd-async", _ALL_TENSORS),
    "DGC-async": (*_DGC, _MOMENTUM),
    "DGS": (*_DGS, _MOMENTUM),
}
#: With `REDUCED_WORKERS` workers: the same less one thing, and DGS in both directions.
REDUCED: dict[str, tuple[str, ...]] = {
    "DGS, momentum 0": (*_DGS, "--momentum=0"),
    "DGS, momentum 0.3": (*_DGS, "--momentum=0.3"),
    "DGS, rate ÷ 4": (*_DGS, _MOMENTUM),
    "DGC-async, momentum 0": (*_DGC, "--momentum=0"),
    "DGC-async, rate ÷ 4": (*_DGC, _MOMENTUM),
    "GD-async, rate ÷ 4": TABLE_3["GD-async"],
    "ASGD, rate ÷ 4": TABLE_3["ASGD"],
    "DGS, rate does not fall": (*_DGS[1:], _MOMENTUM),
    "DGS both ways": (*_DGS, _MOMENTUM, "--secondary-ratio=0.01"),
}
METHODS = {ALONE: (FALL, "--mode=local", _MOMENTUM), **TABLE_3, **REDUCED}
#: Numbers of workers, in the order in which a budget is spent on them.
WORKERS = (16, 4, 1, 8, 32)
#: Seeds are several up to so many workers.
REPEATED, REDUCED_WORKERS = 16, 16
#: Evaluations of a run.
POINTS = 24
#: Core-seconds of a batch: gradient, messages, server, and evaluations.
BATCH_COST = 0.032


@dataclass(frozen=True)
class SparseRun:
    """One simulation.

    Attributes:
        method: one of METHODS.
        workers: how many.
        seed: seed of data and weights.
        epochs: passes through the training set, of all workers together.
    """

    method: str
    workers: int
    seed: int
    epochs: int

    @property
    def name(self) -> str:
        """Stem of its files."""
        method = self.method.replace(",", "").replace("÷", "by").replace(" ", "-")
        return f"{method}-{self.workers}-workers-{self.epochs}-epochs-seed{self.seed}"

    @property
    def batches(self) -> int:
        """Batches of all workers together."""
        return self.epochs * TRAINING_IMAGES // BATCH_SIZE

    def words(self, options: argparse.Namespace) -> list[str]:
        """Return the command line."""
        rate = RATE / 4 if self.method.endswith("rate ÷ 4") else RATE
        words = [*METHODS[self.method], f"--learning-rate={rate:g}", "--weight-decay=0.0005", f"--seed={self.seed}"]
        words += [f"--epochs={self.epochs}", f"--eval-duration={max(1, self.batches // self.workers // POINTS)}"]
        return simulate(description(self.workers, options.out), self, options.out, *words, "--no-logs")

    def planned(self) -> float:
        """Return the core-seconds that it costs by estimate."""
        return BATCH_COST * self.batches


def description(workers: int, out: Path) -> Path:
    """Write the description of a cluster of equal devices, and return its file."""
    content = {
        "scheduler": {"host": "server"},
        "servers": [{"host": "server"}],
        "workers": [{"host": "node", "device": "cpu", "count": workers, "step_time": 0.1, "simulate": {"jitter": 0.1}}],
        "network": {"bandwidth": "100Gbit", "latency": "0.1ms"},
        "simulate": {"evaluation_time": 1e-6},
        "train": {"network": NARROW, "batch_size": BATCH_SIZE},
    }
    return write_description(out / f"cluster-{workers}.yaml", content)


def runs(seeds: int, epochs: int) -> list[SparseRun]:
    """Return the runs, in the order in which a budget is spent on them."""
    compared = [
        SparseRun(method, workers, seed, epochs)
        for seed in range(seeds)
        for workers in WORKERS
        if workers <= REPEATED or seed == 0
        for method in [*([ALONE] if workers == 1 else []), *TABLE_3]
    ]
    return compared + [SparseRun(method, REDUCED_WORKERS, seed, epochs) for seed in range(seeds) for method in REDUCED]


def table(out: Path, seeds: int, epochs: int) -> str:
    """Return the results in Markdown; differences are to momentum SGD alone with the same seed, in points."""
    finished, chosen = results(out), runs(seeds, epochs)
    groups: dict[tuple[str, int], list[SparseRun]] = {}
    for run in chosen:
        if run.name in finished:
            groups.setdefault((run.method, run.workers), []).append(run)
    alone = {run.seed: 100 * mean_of_last(finished[run.name], 0.1) for run in groups.get((ALONE, 1), [])}
    rows = []
    for (method, workers), group in sorted(groups.items(), key=lambda item: item[0][1]):
        last = [100 * mean_of_last(finished[run.name], 0.1) for run in group]
        best = [100 * max(accuracy for *_, accuracy in finished[run.name]["accuracies"]) for run in group]
        differences = [value - alone[run.seed] for run, value in zip(group, last, strict=True) if run.seed in alone]
        difference = f"{statistics.fmean(differences):+.2f}" if differences else "–"
        rows.append(
            [method, str(workers), str(len(group)), spread_or_value(last, 2), difference, spread_or_value(best, 2)]
        )
    return markdown_table(["method", "workers", "seeds", "last tenth, %", "to momentum SGD", "best, %"], rows)


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of this program."""
    parser = simulation_parser(__doc__, "sparse-resnet18", 3, "how many")
    parser.add_argument("--epochs", type=count, default=6, help="(default: %(default)s)")
    return parser.parse_args(words)


def main() -> int:
    """Carry out the runs and print the table."""
    options = parse_arguments()
    chosen = runs(options.seeds, options.epochs)
    if options.list:
        return listed(chosen, options, SparseRun.planned)
    kept = within_budget(chosen, options, SparseRun.planned)
    succeeded = carry_out(kept, options)
    write_table(options.out / "table.md", table(options.out, options.seeds, options.epochs))
    return 0 if succeeded else 1


if __name__ == "__main__":
    program.run(main)
