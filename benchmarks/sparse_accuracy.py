"""How accurate are sparse exchanges? `python benchmarks/sparse_accuracy.py [--json FILE]`.

Fashion-MNIST with real gradients: 4 and 16 simulated workers train with ASGD, GD-async, DGC-async and DGS, and one
alone with momentum SGD, all on the same number of samples, with the same learning rate, schedule (÷ 10 after 60 % and
80 %, as published) and weight decay; several seeds of each. The workers run the real algorithms, messages and servers
in virtual time; devices differ by 10 % from iteration to iteration. The network is a small perceptron, written in
NumPy, so that a gradient takes a millisecond.

Its output layer and its biases have fewer values than SPARSE_DENSE_BELOW, so the defaults send them whole. The methods
"…, sparse" set --sparse-dense-below to 0 and send 1 % of these tensors, too. The table has the share of the values that
each method really sends.

Every finished run is written to --out at once: interrupted, the same command goes on where it was.
"""

import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from harness import program
from harness.figures import interval, read_figures, write_figures
from harness.perceptron import LAYERS, Copy, Perceptron

from esync.algorithms import AlgorithmContext
from esync.algorithms.context import Hyper
from esync.arguments import choose_algorithm
from esync.data import Batches, as_floats, find_data_dir, load, partition
from esync.exchange import WEIGHTS
from esync.exchange.codecs.sparse.selection import Selection
from esync.exchange.protocol.round_state import Limits
from esync.exchange.protocol.wire import HEADER_ELEMENTS
from esync.launch import flags
from esync.runtime.errors import ExpectedError
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
SPARSE_MODES = {"GD-async": "gd-async", "DGC-async": "dgc-async", "DGS": "dgs"}
#: What is compared: name → flags; DGC and DGS take MOMENTUM, the others have none.
METHODS = {
    "ASGD": ["--mode=async"],
    **{name: [f"--mode={mode}"] for name, mode in SPARSE_MODES.items()},
    **{f"{name}, sparse": [f"--mode={mode}", "--sparse-dense-below=0"] for name, mode in SPARSE_MODES.items()},
}
ALONE = "momentum SGD"
#: Points of accuracy that DGS may be below momentum SGD.
TARGET = 0.5


class Trainer(TimedTrainer):
    """With a learning rate that falls."""

    def __init__(self, *arguments: Any, momentum: float, steps: int) -> None:
        super().__init__(*arguments)
        self._momentum, self._steps, self._done = momentum, steps, 0
        self._leaps = None  # every gradient counts

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
    """Computes the gradient of the next batch."""

    def __init__(self, net: Perceptron, batches: Batches) -> None:
        self._net, self._batches = net, batches

    def run(self, recorder: Any) -> int:
        """See `loop.Iteration`."""
        images, labels = next(self._batches)
        self._net.learn(images, labels)
        return len(labels)


class Numerics:
    """What the simulated workers compute with; see `simulate.simulation.Numerics`."""

    evaluates = False
    wire: Mapping[str, int] | None = None

    def __init__(self, data: Any, options: Any, workers: int, momentum: float) -> None:
        self._data, self._options, self._momentum = data, options, momentum
        self.samples = len(data.train_labels)
        self._shares = partition("uniform", data.train_labels, workers, options.seed).shares
        self._limits = Limits(samples=options.epochs * self.samples)
        self._steps = int(options.epochs * self.samples / options.batch_size / workers)

    def start(self, rank: int, world: SimulatedWorld) -> tuple[Trainer, Iteration]:
        """See `Numerics`."""
        data, options = self._data, self._options
        net = Perceptron(options.seed)
        batches = Batches(
            data.train_images, data.train_labels, self._shares[rank], options.batch_size, (options.seed, rank)
        )
        step_time = world.simulated.step_time
        algorithm = choose_algorithm(options)
        trainer = Trainer(
            algorithm, world, self._limits, step_time, Copy(net), momentum=self._momentum, steps=self._steps
        )
        return trainer, Iteration(net, batches)


def rate_after(share: float) -> float:
    """The learning rate (of the batch's mean) after that share of the run."""
    return RATE / 10 ** sum(share >= each for each in DROPS)


def alone(data: Any, epochs: float, batch_size: int, seed: int) -> Perceptron:
    """Momentum SGD on one device."""
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
    return net


def together(data: Any, method: str, workers: int, epochs: float, batch_size: int, seed: int) -> Perceptron:
    """A simulated cluster; the model in the end is that of the server."""
    words = [*METHODS[method], f"--epochs={epochs}", f"--batch-size={batch_size}", f"--seed={seed}"]
    options = flags.parse([*words, "--weight-decay=0.0005", "--no-evaluation"])
    cluster = ClusterModel(
        workers=tuple(
            WorkerModel(rank, f"worker-{rank}", "cpu", DeviceModel(step_time=1.0, jitter=0.1))
            for rank in range(workers)
        ),
        servers=(ServerModel("server", 0.0, math.inf),),
        state_server=StateServerModel("server", 0.0),
        link=lambda host: Link(),
        evaluation_time=1.0,
    )
    momentum = MOMENTUM if options.mode in ("dgs", "dgc-async") else 0.0
    simulation = Simulation(cluster, options, Numerics(data, options, workers, momentum))
    simulation.run()
    net = Perceptron(seed)
    node = simulation.side.nodes[0]
    layout = node.endpoint.server.layout
    for bucket in layout.buckets:
        if bucket.vector == WEIGHTS:
            pulled = node.copy(layout.key(bucket), shared=False)
            net.values[bucket.start : bucket.stop] = pulled[HEADER_ELEMENTS:]
    return net


def share_sent(method: str) -> float:
    """The share of the weights that a worker sends in one exchange."""
    options = flags.parse(METHODS.get(method, ["--mode=local"]))
    if options.mode not in SPARSE_MODES.values():
        return 1.0
    sizes = Copy(Perceptron(0)).weights.sizes
    selection = Selection(sizes, options.sparse_ratio, options.sparse_dense_below)
    return selection.of(np.random.default_rng(0).standard_normal(sum(sizes), np.float32)).size / sum(sizes)


def report(runs: dict[str, Any], workers: list[int]) -> tuple[list[dict[str, Any]], bool]:
    """The table's rows, and whether the target is met."""
    rows, met = [], True
    alone_mean = interval([run["accuracy"] for run in runs.values() if run["method"] == ALONE])[0]
    for method in (ALONE, *METHODS):
        for count in [1] if method == ALONE else workers:
            found = [run["accuracy"] for run in runs.values() if (run["method"], run["workers"]) == (method, count)]
            if not found:
                continue
            mean, half = interval(found)
            row: dict[str, Any] = {
                "method": method,
                "workers": count,
                "accuracy": mean,
                "half_width": half,
                "seeds": len(found),
            }
            row["difference"] = mean - alone_mean
            rows.append(row)
            row["share_sent"] = share_sent(method)
            met &= SPARSE_MODES.get(method.removesuffix(", sparse")) != "dgs" or 100 * row["difference"] >= -TARGET
            print(
                f"| {method} | {100 * row['share_sent']:.2f} % | {count} | {100 * mean:.2f} ± {100 * half:.2f} | "
                f"{100 * row['difference']:+.2f} |",
                flush=True,
            )
    return rows, met


def main() -> int:
    """Run what is missing, print the table; 1 where the target is missed."""
    parser = program.parser(__doc__)
    add = parser.add_argument
    add("--out", type=Path, default=Path("sparse-accuracy.json"), help="finished runs (default: %(default)s)")
    add("--workers", type=int, nargs="+", default=[4, 16], help="(default: 4 16)")
    add("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS), help="(default: all)")
    add("--seeds", type=int, default=5, help="(default: %(default)s)")
    add("--epochs", type=float, default=12, help="(default: %(default)s)")
    add("--batch-size", type=int, default=32, help="of each worker (default: %(default)s)")
    options = parser.parse_args()
    try:
        data = load("fashion-mnist", find_data_dir(None, "fashion-mnist"))
    except ExpectedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    images = as_floats(data.test_images)
    setting = {"epochs": options.epochs, "batch_size": options.batch_size, "layers": list(LAYERS), "rate": RATE}
    setting |= {"momentum": MOMENTUM, "weight_decay": DECAY, "sparse_ratio": 0.01}
    kept = {"setting": setting, **read_figures(options.out)}
    if kept["setting"] != setting:
        print(f"error: {options.out} holds runs of another setting; name another file with --out", file=sys.stderr)
        return 1
    runs = kept.setdefault("runs", {})
    for seed in range(options.seeds):
        for method, count in [(ALONE, 1), *((method, n) for n in options.workers for method in options.methods)]:
            name = f"{method}, {count} workers, seed {seed}"
            if name in runs:
                continue
            begun = time.process_time()
            if method == ALONE:
                net = alone(data, options.epochs, options.batch_size, seed)
            else:
                net = together(data, method, count, options.epochs, options.batch_size, seed)
            accuracy, seconds = net.accuracy(images, data.test_labels), time.process_time() - begun
            runs[name] = {"method": method, "workers": count, "accuracy": accuracy, "core_seconds": seconds}
            write_figures(options.out, kept)
            print(f"{name}: {accuracy:.4f} ({seconds:.1f} s)", file=sys.stderr, flush=True)
    rows, met = report(runs, options.workers)
    hours = sum(run["core_seconds"] for run in runs.values()) / 3600
    print(f"{hours:.2f} core-hours; DGS within {TARGET} points of momentum SGD: {program.verdict(met)}")
    kept |= {"command": program.command(), "rows": rows, "core_hours": hours, "met": met}
    write_figures(options.json, kept)
    return 0 if met else 1


if __name__ == "__main__":
    program.run(main)
