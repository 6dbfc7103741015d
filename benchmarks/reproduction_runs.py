"""The runs of the ESync paper's experiments: which there are, and the command line of each."""

import argparse
import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

RATE = 0.0005  # published, on the gradient summed over the batch
TARGET = "0.8"
TRAINING_IMAGES = 60_000
NETWORKS = ("resnet18-v1", "mobilenet-v1")
MORE_NETWORKS = ("resnet50-v1", "resnet50-v2", "alexnet", "inception-v3")
#: Name → flags.
ALGORITHMS = {
    "esync": ("--mode=esync",),
    "sync": ("--mode=sync",),
    "async": ("--mode=async",),
    "dcasgd": ("--mode=async", "--use-dcasgd=1"),
    "local": ("--mode=local",),
}
PARTITIONS = {"iid": "contiguous", "niid": "class"}
#: Rounds between two evaluations: an evaluation costs as much as some 15 gradients of 64 images do for 2,500 of them.
EVALUATE_EVERY = {"esync": 1, "sync": 10, "async": 10, "dcasgd": 10}


@dataclass(frozen=True)
class Run:
    """One simulation.

    Attributes:
        network: as in `esync.models`.
        algorithm: one of ALGORITHMS.
        data: "iid" or "niid".
        factor: of the published learning rate.
        seed: of data and weights.
        parity: it is one of those that compare final accuracies: evaluated at its end only, on all images.
        free: the network between the machines costs nothing; no gradients, only times.
        longer: it goes on until it is at 0.8.
    """

    network: str
    algorithm: str
    data: str = "iid"
    factor: int = 1
    seed: int = 0
    parity: bool = False
    free: bool = False
    longer: bool = False

    @property
    def name(self) -> str:
        """Of its files."""
        more = f"-x{self.factor}" if self.factor != 1 else ""
        more += f"-seed{self.seed}" if self.parity else ""
        more += "-free" if self.free else "-longer" if self.longer else ""
        return f"{self.network}-{self.algorithm}-{self.data}{more}"

    @property
    def after(self) -> "Run | None":
        """The run that says how many samples this one has."""
        return replace(self, algorithm="esync") if self.parity and self.algorithm == "local" else None

    @property
    def continued(self) -> "Run | None":
        """The run that takes this one's place where it does not come to 0.8."""
        compared = self.data == "iid" and self.factor == 1 and not (self.parity or self.free or self.longer)
        return replace(self, longer=True) if compared else None

    def words(self, given: argparse.Namespace) -> list[str]:
        """The command line."""
        out, epochs = given.out, given.most_epochs if self.longer else given.epochs
        file = "paper" if self.network == NETWORKS[0] else f"paper-{self.network}"
        rate = "--local-lr" if self.algorithm == "esync" else "--learning-rate"
        words = [sys.executable, "-m", "esync.simulate", f"clusters/{file}.yaml", *ALGORITHMS[self.algorithm]]
        words += [f"--partition={PARTITIONS[self.data]}", f"{rate}={RATE * self.factor:g}", f"--seed={self.seed}"]
        words += [f"--json={out / self.name}.json", "--overwrite"]
        if self.free:
            return [*words, "--numerics=none", "--no-logs", "--rounds=100", "--free-network"]
        if self.after:
            samples = json.loads((out / f"{self.after.name}.json").read_text())["samples"]
            epochs = (samples - 0.5) / TRAINING_IMAGES  # rounded up to just that number of samples
        if self.parity:
            never = 10**9
            return [*words, f"--epochs={epochs:.9g}", f"--eval-duration={never}", "--no-logs", f"--max-time={never}"]
        kind = "logs" if self.factor == 1 else f"logs-x{self.factor}"
        every = EVALUATE_EVERY[self.algorithm]
        words += [f"--epochs={epochs:g}", f"--eval-duration={every}", f"--test-images={given.test_images}"]
        if self.factor != 1 or self.longer:
            words.append(f"--target-accuracy={TARGET}")
        return [*words, f"--log-dir={out / kind}"]


def runs(full: bool, parity: bool, seeds: int) -> list[Run]:
    """All of them, in the order of their worth."""
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


def result_of(out: Path, run: Run) -> dict[str, Any] | None:
    """What came out of a run; None where it is not done."""
    path = out / f"{run.name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def time_to_target(result: dict[str, Any]) -> float:
    """Virtual seconds until it was at 0.8; infinite where it never was."""
    at = result["time_to"].get(TARGET)
    return math.inf if at is None else float(at)


def to_continue(out: Path, chosen: Iterable[Run]) -> list[Run]:
    """The longer runs in place of those that are done and did not come to 0.8."""
    found = [(run.continued, result_of(out, run)) for run in chosen]
    return [longer for longer, result in found if longer and result and time_to_target(result) == math.inf]
