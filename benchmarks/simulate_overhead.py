"""What does a simulation with real gradients cost beside them?

    python benchmarks/simulate_overhead.py [--json FILE]

Simulates a cluster (the paper's, ESync, unless told otherwise) and computes, after every iteration
of the simulation, one bare gradient of the same kind: forward and backward on a batch that is there
already, nothing else. So both are measured in the same run, turn by turn, whatever else the machine
does. The ratio is the time of the simulation, with exchanges and evaluations, by that of as many
bare gradients.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import program
from harness.figures import write_figures

from esync.launch import flags
from esync.launch.description import read
from esync.models.networks import MODELS
from esync.runtime.mxnet_import import mx
from esync.simulate.cluster import model
from esync.simulate.gradients import GradientNumerics
from esync.simulate.simulation import Simulation

TARGET = 1.15


class Bare:
    """Forward and backward pass of one network on one batch."""

    def __init__(self, numerics: GradientNumerics, options: argparse.Namespace) -> None:
        self._net = numerics._build()
        size = MODELS[options.network].size
        images = np.random.default_rng(0).random((options.batch_size, 1, size, size), np.float32)
        self._inputs, self._labels = mx.nd.array(images), mx.nd.array(np.arange(options.batch_size) % 10)
        self._loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
        self.seconds, self.gradients = 0.0, 0

    def run(self) -> None:
        """Compute one gradient."""
        begun = time.perf_counter()
        with mx.autograd.record():
            losses = self._loss(self._net(self._inputs), self._labels)
        losses.backward()
        mx.nd.waitall()
        self.seconds += time.perf_counter() - begun
        self.gradients += 1


def measure(path: Path, settings: dict[str, Any], virtual: float) -> dict[str, Any]:
    """Simulate that many virtual seconds; return the figures."""
    description = read(path, {})
    merged = flags.merge(description.train, {**settings, "max_time": virtual})
    options = flags.parse(flags.to_arguments(merged))
    numerics = GradientNumerics(options, len(description.workers))
    bare = Bare(numerics, options)
    for _ in range(3):
        bare.run()
    bare.seconds, bare.gradients = 0.0, 0
    simulation = Simulation(model(description, path.parent), options, numerics)
    interleave(numerics, bare)
    begun = time.perf_counter()
    simulation.run()
    simulated = time.perf_counter() - begun - bare.seconds
    return {
        "network": options.network,
        "mode": options.mode,
        "rounds": simulation.rounds,
        "gradients": bare.gradients,
        "evaluations": len(simulation.accuracies),
        "bare": bare.seconds,
        "simulated": simulated,
        "evaluating": numerics.seconds["evaluation"],
        "ratio": simulated / bare.seconds,
        "target": TARGET,
    }


def interleave(numerics: GradientNumerics, bare: Bare) -> None:
    """Have a bare gradient follow each of the simulation's gradients."""
    start = numerics.start

    def starting(rank: int, world: Any) -> tuple[Any, Any]:
        trainer, iteration = start(rank, world)
        run = iteration.run

        def both(recorder: Any) -> int:
            samples: int = run(recorder)
            bare.run()
            return samples

        iteration.run = both  # type: ignore[method-assign]
        return trainer, iteration

    numerics.start = starting  # type: ignore[method-assign]


def main() -> int:
    """Measure and print; return the exit code."""
    parser = program.parser(__doc__)
    parser.add_argument("--cluster", type=Path, default=Path("clusters/paper.yaml"))
    parser.add_argument("--max-time", type=float, default=25.0, help="virtual seconds (default: %(default)s)")
    parser.add_argument("--mode", default="esync", choices=("esync", "sync", "async"))
    parser.add_argument("--network", default=None)
    given = parser.parse_args()
    settings = {"mode": given.mode} if given.network is None else {"mode": given.mode, "network": given.network}
    measured = measure(given.cluster, settings, given.max_time)
    print(
        f"{measured['network']}, {measured['mode']}: {measured['rounds']} rounds, {measured['gradients']} gradients: "
        f"{measured['simulated']:.1f} s simulated (of which {measured['evaluating']:.1f} s are "
        f"{measured['evaluations']} evaluations), {measured['bare']:.1f} s bare: ratio {measured['ratio']:.3f} "
        f"(target {TARGET})"
    )
    write_figures(given.json, measured)
    return 0


if __name__ == "__main__":
    program.run(main)
