"""The runs that reproduce the ESync paper's experiments, and what each of them costs."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from esync.reports.modes import STANDALONE
from esync.reports.published_results import END

from . import program
from .simulations import PARTITIONS, RATE, TARGET, result_file, results, write_description

#: The program that carries out a simulation in parts.
IN_PARTS = Path(__file__).resolve().parents[1] / "in_parts.py"
TRAINING_IMAGES = 60_000
TEST_IMAGES = 10_000
BATCH_SIZE = 64
NETWORKS = ("resnet18-v1", "mobilenet-v1")
MORE_NETWORKS = ("resnet50-v1", "resnet50-v2", "alexnet", "inception-v3")
#: Narrow ResNet-18, which is simulated over the whole horizon, with batch norm and group norm.
NARROW, NARROW_GROUP_NORM = HORIZON_NETWORKS = ("resnet18-v1x0.25", "resnet18-v1x0.25-groupnorm")
#: Network → its description in clusters/, where that is not called paper-NETWORK.
CLUSTERS = {"resnet18-v1": "paper", **dict.fromkeys(HORIZON_NETWORKS, "paper-narrow")}
#: Name → flags.
ALGORITHMS = {
    "esync": ("--mode=esync",),
    "sync": ("--mode=sync",),
    "async": ("--mode=async",),
    "dcasgd": ("--mode=async", "--use-dcasgd=1"),
    "local": ("--mode=local",),
}
#: Rounds between two evaluations: an evaluation costs as much as some 15 gradients of 64 images do
#: for 2,500 of them.
EVALUATE_EVERY = {"esync": 1, "sync": 10, "async": 10, "dcasgd": 10}
#: The same over the whole horizon: 110 to 180 evaluations of a run.
HORIZON_EVALUATE_EVERY = {"esync": 5, "sync": 10, "async": 25, "dcasgd": 25, "local": 1500}
#: Algorithms whose runs over the whole horizon take hours → the number of parts in which they are done.
PARTS = {"esync": 8, "local": 4}
#: Factors of the published learning rate with which sequential SGD looks for its best one.
LOCAL_FACTORS = (1, 2, 4, 8)

#: Network → seconds of a gradient of BATCH_SIZE images on one core of an AMD EPYC, measured at commit 3556691 with
#: benchmarks/gradient_costs.py.
GRADIENT = {
    "resnet18-v1x0.25": 0.009,
    "mobilenet-v1x0.25": 0.012,
    "resnet50-v1x0.25": 0.025,
    "resnet50-v2x0.25": 0.025,
    "alexnetx0.25": 0.09,
    "inception-v3x0.25": 0.55,
    "resnet18-v1x0.25-groupnorm": 0.024,
    "resnet18-v1": 0.093,
    "mobilenet-v1": 0.062,
    "resnet50-v1": 0.27,
    "resnet50-v2": 0.3,
    "alexnet": 1.3,
    "inception-v3": 13.0,
}
EVALUATION = 0.25  # cost of evaluating BATCH_SIZE images, in gradients
OVERHEAD = 1.1  # cost of a simulation ÷ that of its gradients and evaluations
#: Samples per second, and samples of all workers in a round of the worker that evaluates, in
#: simulations of clusters/paper.yaml.
THROUGHPUT = {"esync": 3702, "sync": 59, "async": 135, "dcasgd": 135, "local": 2133}
SAMPLES_PER_ROUND = {"esync": 29_800, "sync": 384, "async": 302, "dcasgd": 302, "local": 64}


@dataclass(frozen=True)
class Run:
    """One simulation.

    Attributes:
        network: as in `esync.models`.
        algorithm: one of ALGORITHMS.
        data: "iid" or "niid".
        factor: factor of the published learning rate.
        seed: seed of data and weights.
        parity: whether it is one of the runs that compare final accuracies, which are evaluated at
            their end only, on all images.
        free: whether the network costs nothing; such a run has times only, no gradients.
        longer: whether it goes on until it reaches 0.8.
        minutes: virtual time of a run over the horizon of a network that is too large for all of it.
    """

    network: str
    algorithm: str
    data: str = "iid"
    factor: int = 1
    seed: int = 0
    parity: bool = False
    free: bool = False
    longer: bool = False
    minutes: int | None = None

    @property
    def name(self) -> str:
        """Stem of its files."""
        more = f"-x{self.factor}" if self.factor != 1 else ""
        more += f"-seed{self.seed}" if self.parity or self.seed else ""
        more += "-free" if self.free else "-longer" if self.longer else ""
        more += f"-{self.minutes}min" if self.minutes else ""
        return f"{self.network}-{self.algorithm}-{self.data}{more}"

    @property
    def mode_folder(self) -> str:
        """Name of the folder that has the logs of its mode."""
        return self.algorithm if self.data == "iid" else f"{self.algorithm}-niid"

    @property
    def horizon(self) -> bool:
        """Whether it lasts as long as the paper's runs, whatever its number of samples."""
        return self.network in HORIZON_NETWORKS or self.minutes is not None

    @property
    def after(self) -> "Run | None":
        """The run whose number of samples this one has to use; None if there is none."""
        return replace(self, algorithm="esync") if self.parity and self.algorithm == "local" else None

    @property
    def continued(self) -> "Run | None":
        """The run that takes this one's place if it does not reach 0.8; None if there is none."""
        special = self.parity or self.free or self.longer or self.horizon
        compared = self.data == "iid" and self.factor == 1 and not special
        return replace(self, longer=True) if compared else None

    def seconds(self, options: argparse.Namespace) -> float:
        """Return the virtual seconds of a run over the horizon, or of its first parts."""
        parts = PARTS.get(self.algorithm)
        return self.end if parts is None else self.end * min(options.first_parts or parts, parts) / parts

    @property
    def end(self) -> float:
        """Return the virtual seconds of a whole run over the horizon."""
        return self.minutes * 60 if self.minutes else END

    @property
    def evaluate_every(self) -> int:
        """Return the rounds between two evaluations; a short run over the horizon has one in each."""
        if self.minutes:
            return 1
        return (HORIZON_EVALUATE_EVERY if self.horizon else EVALUATE_EVERY)[self.algorithm]

    def words(self, options: argparse.Namespace) -> list[str]:
        """Return the command line."""
        out, epochs = options.out, options.most_epochs if self.longer else options.epochs
        file = CLUSTERS.get(self.network, f"paper-{self.network}")
        rate = "--local-lr" if self.algorithm == "esync" else "--learning-rate"
        parts = PARTS.get(self.algorithm) if self.horizon else None
        begin = ["-m", "esync.simulate"] if parts is None else [str(IN_PARTS), f"--parts={parts}"]
        words = [sys.executable, *begin, f"clusters/{file}.yaml", *ALGORITHMS[self.algorithm]]
        words += [f"--partition={PARTITIONS[self.data]}", f"{rate}={RATE * self.factor:g}", f"--seed={self.seed}"]
        words += [f"--network={self.network}", f"--json={result_file(out, self)}", "--overwrite"]
        if self.free:
            return [*words, "--numerics=none", "--no-logs", "--rounds=100", "--free-network"]
        if self.after:
            samples = results(out)[self.after.name]["samples"]
            epochs = (samples - 0.5) / TRAINING_IMAGES  # rounded up to just that number of samples
        if self.parity:
            never = 10**9
            return [*words, f"--epochs={epochs:.9g}", f"--eval-duration={never}", "--no-logs", f"--max-time={never}"]
        if self.horizon:
            words += [f"--max-time={self.end:g}", f"--eval-duration={self.evaluate_every}"]
            words.append(f"--test-images={options.test_images}")
            if parts is not None:
                return [*words, *([f"--first={options.first_parts}"] if options.first_parts else ())]
            logged = self.seed == 0  # figures show that one
            return [*words, f"--log-dir={out / 'logs'}" if logged else "--no-logs"]
        kind = "logs" if self.factor == 1 else f"logs-x{self.factor}"
        words += [
            f"--epochs={epochs:g}",
            f"--eval-duration={self.evaluate_every}",
            f"--test-images={options.test_images}",
        ]
        if self.factor != 1 or self.longer:
            words.append(f"--target-accuracy={TARGET}")
        return [*words, f"--log-dir={out / kind}"]


def runs(full: bool, parity: bool, seeds: int) -> list[Run]:
    """Return all runs, the most important ones first."""
    chosen: list[Run] = [Run(NETWORKS[0], "esync", free=True)]
    for network in (*NETWORKS, *(MORE_NETWORKS if full else ())):
        chosen += [Run(network, algorithm) for algorithm in ("esync", "sync")]
        chosen += [Run(network, "sync", factor=factor) for factor in (2, 4)]
        chosen += [Run(network, algorithm) for algorithm in ("async", "dcasgd")]
        chosen += [Run(network, algorithm, "niid") for algorithm in ("esync", "sync", "async", "dcasgd")]
    if parity:
        pairs = [(seed, algorithm) for seed in range(seeds) for algorithm in ("esync", "local")]
        chosen += [Run(NETWORKS[0], algorithm, seed=seed, parity=True) for seed, algorithm in pairs]
    return chosen


def horizon_runs() -> list[Run]:
    """Return the runs over the whole horizon, in the order in which a budget is spent on them.

    With seed 0 the cheap ones come first, then ESync, then sequential SGD. Then the cheap ones have
    two more seeds. Group norm is for data by class. ResNet-18 itself comes last, for ten minutes.
    """
    cheap = [(algorithm, data) for algorithm in ("sync", "async", "dcasgd") for data in PARTITIONS]
    chosen = [Run(NARROW, algorithm, data) for algorithm, data in cheap]
    chosen += [Run(NARROW_GROUP_NORM, "sync", data) for data in PARTITIONS]
    chosen += [Run(NARROW, "esync", data) for data in PARTITIONS]
    chosen += [Run(NARROW, STANDALONE, factor=factor) for factor in LOCAL_FACTORS]
    chosen += [Run(NARROW_GROUP_NORM, "esync", data) for data in ("niid", "iid")]
    chosen += [Run(NARROW, algorithm, data, seed=seed) for seed in (1, 2) for algorithm, data in cheap]
    return [*chosen, Run(NETWORKS[0], "esync", minutes=10)]


def planned(run: Run, options: argparse.Namespace) -> float:
    """Return the core-seconds that a run costs by estimate, at most if it may end at a target."""
    if run.free:
        return 0.0
    if run.horizon:
        samples = THROUGHPUT[run.algorithm] * run.seconds(options)
    else:
        samples = TRAINING_IMAGES * (options.most_epochs if run.longer else options.epochs)
    evaluated = float(TEST_IMAGES)
    if not run.parity:
        evaluated += options.test_images * samples / SAMPLES_PER_ROUND[run.algorithm] / run.evaluate_every
    return OVERHEAD * GRADIENT[run.network] * (samples + EVALUATION * evaluated) / BATCH_SIZE


def narrow_cluster(name: str, changes: Mapping[str, Any], out: Path) -> Path:
    """Write a description that trains a narrow ResNet-18 in place of ResNet-18, and return its file.

    Args:
        name: of the file.
        changes: of clusters/paper-narrow.yaml.
        out: folder of the file.
    """
    description: dict[str, Any] = yaml.safe_load((program.CLUSTERS / "paper-narrow.yaml").read_text())
    del description["train"]["max_time"]
    description["simulate"] = {"model_bytes": "44.73988MB", "evaluation_time": 1e-6}
    description |= changes
    name = "-".join([name, *(key for key in ("per_host",) if description.get(key))])
    return write_description(out / f"{name}.yaml", description)
