"""How accurate are sparse exchanges?

    python benchmarks/sparse_accuracy.py [--budget CORE-HOURS] [--list] [--json FILE]

Table 3 of the DGS paper with real gradients on Fashion-MNIST: 1, 4, 8, 16 and 32 simulated workers
train with ASGD, GD-async, DGC-async and DGS, and one alone with momentum SGD, all on the same
number of samples, with the same learning rate, schedule (÷ 10 after 60 % and 80 %, as published)
and weight decay; several seeds of each. The workers run the real algorithms, messages and servers
in virtual time; devices differ by 10 % from iteration to iteration. The network is a small
perceptron, written in NumPy, so that a gradient takes a millisecond.

Its output layer and its biases have fewer values than SPARSE_DENSE_BELOW, so the defaults send them
whole. The methods "…, sparse" set --sparse-dense-below to 0 and send 1 % of these tensors, too;
"…, sparse both ways" compress the server's answers to 1 % as well (secondary compression). DGC and
DGS with momentum 0.3 are for 32 workers and more. The methods without "sparse" run where --methods
names them. The table has the share of the values that each method really sends.

Every finished run is written to --json at once, with test accuracies on its way and core-seconds:
interrupted, the same command goes on where it was. `--list` prints what each run is planned to cost
and has cost; `--budget` leaves out the end of the list where it costs more than that. Runs of an
earlier version, which have no curve, count in the table until they have been made anew.
"""

import argparse
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from harness import budget, program
from harness.figures import interval, read_figures, write_figures
from harness.paper_runs import TRAINING_IMAGES
from harness.perceptron import LAYERS, Copy, Perceptron

from esync.algorithms import AlgorithmContext
from esync.algorithms.context import Hyper
from esync.arguments import choose_algorithm, count
from esync.data import Batches, as_floats, find_data_dir, load, partition
from esync.exchange import WEIGHTS
from esync.exchange.codecs.sparse.selection import Selection
from esync.exchange.protocol.round_state import Limits
from esync.exchange.protocol.wire import HEADER_ELEMENTS
from esync.launch import flags
from esync.simulate.cluster import ClusterModel
from esync.simulate.coordination import StateServerModel
from esync.simulate.devices import DeviceModel
from esync.simulate.network import Link
from esync.simulate.servers import ServerModel
from esync.simulate.simulation import Simulation
from esync.simulate.timing import TimedTrainer
from esync.simulate.world import SimulatedWorld, WorkerModel

RATE, MOMENTUM, DECAY = 0.01, 0.7, 5e-4
#: Share of the run after which the learning rate is divided by 10.
DROPS = (0.6, 0.8)
#: With so many workers the paper lowers the momentum, as asynchrony adds momentum of its own.
MANY, MOMENTUM_OF_MANY = 32, 0.3
SPARSE_MODES = {"DGS": "dgs", "DGC-async": "dgc-async", "GD-async": "gd-async"}
TRUE_SHARE = "--sparse-dense-below=0"
#: Methods of the table → flags, in the order in which a budget is spent on them.
TABLE_3 = {
    "DGS, sparse": ["--mode=dgs", TRUE_SHARE],
    "ASGD": ["--mode=async"],
    "DGS, sparse, momentum 0.3": ["--mode=dgs", TRUE_SHARE, f"--momentum={MOMENTUM_OF_MANY}"],
    "DGS, sparse both ways": ["--mode=dgs", TRUE_SHARE, "--secondary-ratio=0.01"],
    "DGC-async, sparse": ["--mode=dgc-async", TRUE_SHARE],
    "GD-async, sparse": ["--mode=gd-async", TRUE_SHARE],
    "DGC-async, sparse, momentum 0.3": ["--mode=dgc-async", TRUE_SHARE, f"--momentum={MOMENTUM_OF_MANY}"],
    "DGC-async, sparse both ways": ["--mode=dgc-async", TRUE_SHARE, "--secondary-ratio=0.01"],
    "GD-async, sparse both ways": ["--mode=gd-async", TRUE_SHARE, "--secondary-ratio=0.01"],
}
#: All that can be compared; DGC and DGS take MOMENTUM if they name none, the others have none.
METHODS = {**TABLE_3, **{name: [f"--mode={mode}"] for name, mode in SPARSE_MODES.items()}}
#: Numbers of workers, in the order in which a budget is spent on them.
WORKERS = (8, 32, 1, 4, 16)
#: Points of a run's curve.
POINTS = 25
ALONE = "momentum SGD"
#: Points of accuracy that DGS may be below momentum SGD.
TARGET = 0.5
#: Core-seconds of one batch of 32, measured on an idle core: gradient, messages, server, and
#: evaluations.
BATCH_COST = {ALONE: 0.0006, "ASGD": 0.0014, **dict.fromkeys(SPARSE_MODES, 0.0030)}
SPARSE_BATCH_COST, BOTH_WAYS_BATCH_COST = 0.0019, 0.0024


@dataclass(frozen=True)
class Run:
    """A method with a number of workers and a seed."""

    method: str
    workers: int
    seed: int

    @property
    def name(self) -> str:
        """Its key in the file of results."""
        return f"{self.method}, {self.workers} workers, seed {self.seed}"

    def planned(self, epochs: float, batch_size: int) -> float:
        """Return the core-seconds that it costs by estimate."""
        batch_cost = SPARSE_BATCH_COST if "sparse" in self.method else BATCH_COST.get(self.method, SPARSE_BATCH_COST)
        batch_cost = BOTH_WAYS_BATCH_COST if "both ways" in self.method else batch_cost
        return batch_cost * epochs * TRAINING_IMAGES / batch_size


class Curve:
    """Test accuracies of a run, by the training samples behind them.

    Args:
        images: test images.
        labels: their labels.
        samples: training samples of the whole run.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, samples: float) -> None:
        self._images, self._labels, self._samples = images, labels, samples
        self.points: list[tuple[int, float]] = []

    def due(self, samples: int) -> bool:
        """Whether the next point on the way lies at or before that many samples."""
        number = len(self.points) + 1
        return number < POINTS and samples * POINTS >= number * self._samples

    def add(self, samples: int, net: Perceptron) -> None:
        """Evaluate a model that has seen that many samples."""
        self.points.append((samples, net.accuracy(self._images, self._labels)))


class Trainer(TimedTrainer):
    """A trainer whose learning rate falls."""

    def __init__(self, *arguments: Any, replica: Any, momentum: float, steps: int) -> None:
        super().__init__(*arguments)
        self.replica = replica
        self._momentum, self._steps, self._done = momentum, steps, 0

    def start(self) -> None:
        """Find the other workers."""
        self.algorithm.start(
            AlgorithmContext(self.replica, self.world, self._hyper, lambda: self._capability, self._limits)
        )
        self.world.device.begin_run(self.elapsed)
        self.world.device.begin_iteration()

    def _hyper(self) -> Hyper:
        rate = rate_after(self._done / self._steps)
        self._done += 1
        return Hyper(rate, self._momentum, DECAY, 1.0)


class Iteration:
    """An iteration that computes the gradient of the next batch."""

    data = None  # the worker keeps its share

    def __init__(self, net: Perceptron, batches: Batches) -> None:
        self._net, self._batches = net, batches

    def run(self, recorder: Any) -> int:
        """See `loop.Iteration.run`."""
        images, labels = next(self._batches)
        self._net.learn(images, labels)
        return len(labels)


class Numerics:
    """What the simulated workers compute with; see `simulate.simulation.Numerics`."""

    evaluates = False
    data_digest = ""
    wire: Mapping[str, int] | None = None

    def __init__(self, data: Any, options: Any, workers: int, momentum: float) -> None:
        self._data, self._options, self._momentum = data, options, momentum
        self.samples = len(data.train_labels)
        self._shares = partition("uniform", data.train_labels, workers, options.seed).shares
        self._limits = Limits(samples=options.epochs * self.samples)
        self._steps = int(options.epochs * self.samples / options.batch_size / workers)

    def start(self, rank: int, world: SimulatedWorld) -> tuple[Trainer, Iteration]:
        """See `simulation.Numerics.start`."""
        data, options = self._data, self._options
        net = Perceptron(options.seed)
        batches = Batches(
            data.train_images, data.train_labels, self._shares[rank], options.batch_size, (options.seed, rank)
        )
        step_time = world.simulated.step_time
        algorithm = choose_algorithm(options)
        trainer = Trainer(
            algorithm, world, self._limits, step_time, replica=Copy(net), momentum=self._momentum, steps=self._steps
        )
        return trainer, Iteration(net, batches)


def rate_after(share: float) -> float:
    """Return the learning rate (of the batch's mean) after that share of the run."""
    return RATE / 10 ** sum(share >= drop for drop in DROPS)


def alone(data: Any, epochs: float, batch_size: int, seed: int, curve: Curve) -> None:
    """Train with momentum SGD on one device; fill the curve."""
    net = Perceptron(seed)
    share = np.arange(len(data.train_labels))
    batches = Batches(data.train_images, data.train_labels, share, batch_size, (seed, 0))
    steps = int(epochs * len(share) / batch_size)
    velocity = np.zeros_like(net.values)
    for step in range(steps):
        net.learn(*next(batches))
        velocity *= np.float32(MOMENTUM)
        velocity += net.slope / np.float32(batch_size) + np.float32(DECAY) * net.values
        net.values -= np.float32(rate_after(step / steps)) * velocity
        if curve.due((step + 1) * batch_size):
            curve.add((step + 1) * batch_size, net)
    curve.add(steps * batch_size, net)


def together(data: Any, run: Run, epochs: float, batch_size: int, curve: Curve) -> None:
    """Train on a simulated cluster; fill the curve with accuracies of the server's model."""
    words = [*METHODS[run.method], f"--epochs={epochs}", f"--batch-size={batch_size}", f"--seed={run.seed}"]
    options = flags.parse([*words, "--weight-decay=0.0005", "--no-evaluation"])
    cluster = ClusterModel(
        workers=tuple(
            WorkerModel(rank, f"worker-{rank}", "cpu", DeviceModel(step_time=1.0, jitter=0.1))
            for rank in range(run.workers)
        ),
        servers=(ServerModel("server", 0.0, math.inf),),
        state_server=StateServerModel("server", 0.0),
        link=lambda host: Link(),
        evaluation_time=1.0,
    )
    momentum = 0.0
    if options.mode in ("dgs", "dgc-async"):
        momentum = MOMENTUM if options.momentum is None else options.momentum

    def watch(simulation: Simulation, trainer: Any) -> None:
        if curve.due(simulation.samples):
            curve.add(simulation.samples, server_model(simulation, run.seed))

    simulation = Simulation(cluster, options, Numerics(data, options, run.workers, momentum), watch=watch)
    simulation.run()
    curve.add(simulation.samples, server_model(simulation, run.seed))


def server_model(simulation: Simulation, seed: int) -> Perceptron:
    """Return the model as the server has it."""
    net = Perceptron(seed)
    node = simulation.state.nodes[0]
    layout = node.endpoint.server.layout
    for bucket in layout.buckets:
        if bucket.vector == WEIGHTS:
            pulled = node.copy(layout.key(bucket), shared=False)
            net.values[bucket.start : bucket.stop] = pulled[HEADER_ELEMENTS:]
    return net


def share_sent(method: str) -> float:
    """Return the share of the weights that a worker sends in one exchange."""
    options = flags.parse(METHODS.get(method, ["--mode=local"]))
    if options.mode not in SPARSE_MODES.values():
        return 1.0
    sizes = Copy(Perceptron(0)).weights.sizes
    selection = Selection(sizes, options.sparse_ratio, options.sparse_dense_below)
    return selection.of(np.random.default_rng(0).standard_normal(sum(sizes), np.float32)).size / sum(sizes)


def report(runs: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """Print the table; return its rows, and whether the target is met."""
    rows, met = [], True
    alone_mean = interval([run["accuracy"] for run in runs.values() if run["method"] == ALONE])[0]
    for method in (ALONE, *METHODS):
        for workers in sorted({run["workers"] for run in runs.values() if run["method"] == method}):
            group = [run for run in runs.values() if (run["method"], run["workers"]) == (method, workers)]
            mean, half = interval([run["accuracy"] for run in group])
            row = {
                "method": method,
                "workers": workers,
                "accuracy": mean,
                "half_width": half if len(group) > 1 else None,
                "seeds": len(group),
                "difference": mean - alone_mean,
                "share_sent": share_sent(method),
                "core_seconds": sum(run["core_seconds"] for run in group),
            }
            rows.append(row)
            met &= not method.startswith("DGS") or 100 * row["difference"] >= -TARGET
            spread = f" ± {100 * half:.2f}" if len(group) > 1 else ""
            print(
                f"| {method} | {100 * row['share_sent']:.2f} % | {workers} | {100 * mean:.2f}{spread} | "
                f"{100 * row['difference']:+.2f} | {len(group)} |",
                flush=True,
            )
    return rows, met


def chosen_runs(options: argparse.Namespace) -> list[Run]:
    """Return the runs in the order in which a budget is spent on them."""
    chosen = []
    for seed in range(options.seeds):
        chosen.append(Run(ALONE, 1, seed))
        pairs = [(method, workers) for method in options.methods for workers in options.workers]
        chosen += [Run(*pair, seed) for pair in pairs if "momentum" not in pair[0] or pair[1] >= MANY]
    return chosen


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exit with code 2 on bad usage."""
    parser = program.parser(__doc__, program.RESULTS / "sparse_accuracy.json")
    add = parser.add_argument
    add("--workers", type=count, nargs="+", default=list(WORKERS), help=f"(default: {' '.join(map(str, WORKERS))})")
    add("--methods", nargs="+", choices=tuple(METHODS), default=list(TABLE_3), help="(default: those of Table 3)")
    add("--seeds", type=count, default=5, help="(default: %(default)s)")
    add("--epochs", type=float, default=12, help="(default: %(default)s)")
    add("--batch-size", type=count, default=32, help="of each worker (default: %(default)s)")
    budget.add_arguments(parser)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Carry out the missing runs, and print the table; return 1 if the target is missed."""
    options = parse_arguments(words)
    setting = {"epochs": options.epochs, "batch_size": options.batch_size, "layers": list(LAYERS), "rate": RATE}
    setting |= {"momentum": MOMENTUM, "weight_decay": DECAY, "sparse_ratio": 0.01}
    kept = read_figures(options.json) or {"setting": setting}
    if kept.get("setting") != setting:
        print(f"error: {options.json} holds runs of another setting; name another file with --json", file=sys.stderr)
        return 1
    runs = kept.setdefault("runs", {})
    chosen = chosen_runs(options)
    planned = {run.name: run.planned(options.epochs, options.batch_size) for run in chosen}
    spent = {name: run["core_seconds"] for name, run in runs.items() if "curve" in run}
    if options.list:
        print(budget.listed(planned, spent, options.budget))
        return 0
    paid_for = budget.within(planned, spent, options.budget)
    if len(paid_for) < len(chosen):
        print(budget.left_out(planned, paid_for), flush=True)
    waiting = [run for run in chosen[: len(paid_for)] if run.name not in spent]
    if waiting:
        carry_out(waiting, options, kept)
    if not runs:
        print("error: the budget is too small for a single run; give more to --budget", file=sys.stderr)
        return 1
    rows, met = report(runs)
    hours = sum(run["core_seconds"] for run in runs.values()) / 3600
    print(f"{hours:.2f} core-hours; DGS within {TARGET} points of momentum SGD: {program.verdict(met)}")
    kept |= {"command": program.command(), "rows": rows, "core_hours": hours, "met": met}
    write_figures(options.json, kept)
    return 0 if met else 1


def carry_out(waiting: Sequence[Run], options: argparse.Namespace, kept: dict[str, Any]) -> None:
    """Carry out these runs; write the results with those that there are after each of them.

    Raises:
        ExpectedError: the data set is not there.
    """
    data = load("fashion-mnist", find_data_dir(None, "fashion-mnist"))
    images = as_floats(data.test_images)
    for run in waiting:
        begun = time.process_time()
        curve = Curve(images, data.test_labels, options.epochs * len(data.train_labels))
        if run.method == ALONE:
            alone(data, options.epochs, options.batch_size, run.seed, curve)
        else:
            together(data, run, options.epochs, options.batch_size, curve)
        accuracy, seconds = curve.points[-1][1], time.process_time() - begun
        kept["runs"][run.name] = {
            "method": run.method,
            "workers": run.workers,
            "accuracy": accuracy,
            "core_seconds": seconds,
            "curve": curve.points,
        }
        write_figures(options.json, kept)
        print(f"{run.name}: {accuracy:.4f} ({seconds:.1f} s)", file=sys.stderr, flush=True)


if __name__ == "__main__":
    program.run(main)
