"""The variants of ESync that are compared, what they train, and their runs of equal time."""

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from esync.data.datasets import load
from esync.runtime.files import write_atomically

from .figures import mean_of_last
from .paper_runs import BATCH_SIZE, EVALUATION, GRADIENT, NARROW_GROUP_NORM, OVERHEAD, TEST_IMAGES
from .simulations import PARTITIONS, RATE, result_file, results

#: Name → flags.
VARIANTS: dict[str, tuple[str, ...]] = {
    "esync": (),
    "esync-samples": ("--weighting=samples",),
    "esync-normalized": ("--weighting=normalized",),
    "esync-outer": ("--weighting=samples", "--outer-momentum=0.3"),
    "esync-fp16": ("--compression=fp16",),
    "esync-fp16-samples": ("--compression=fp16", "--weighting=samples"),
    "esync-2bit": ("--compression=2bit",),
    "esync-2bit-samples": ("--compression=2bit", "--weighting=samples"),
    "esync-overlap": ("--overlap",),
    "esync-overlap-fp16-samples": ("--overlap", "--compression=fp16", "--weighting=samples"),
    "sync": ("--mode=sync",),
    "sync-fp16": ("--mode=sync", "--compression=fp16"),
    "sync-2bit": ("--mode=sync", "--compression=2bit"),
    "local-sgd": ("--mode=local-sgd",),
    "diloco": ("--mode=diloco",),
    "ssp": ("--mode=ssp",),
    "dylu": ("--mode=dylu",),
}
#: Variants that the others are compared with.
PLAIN, SYNC = "esync", "sync"
#: Modes that exchange in every iteration → rounds between two evaluations of a run to the end.
EVERY_ITERATION = {"--mode=sync": 8, "--mode=ssp": 8}


@dataclass(frozen=True)
class Setting:
    """What is trained.

    Attributes:
        file: the cluster's description.
        rate: learning rate of all variants, on the gradient summed over the batch.
        gradient: core-seconds of a gradient of BATCH_SIZE images.
        network: the network where it is not the description's own; "" if it is.
    """

    file: str
    rate: float
    gradient: float
    network: str = ""


SETTINGS = {
    "resnet18-v1": Setting("clusters/paper.yaml", RATE, GRADIENT["resnet18-v1"]),
    NARROW_GROUP_NORM: Setting("clusters/paper-narrow.yaml", RATE, GRADIENT[NARROW_GROUP_NORM], NARROW_GROUP_NORM),
    "mlp": Setting("clusters/paper-mlp.yaml", 0.001, 0.0011),
}


def rate_flag(flags: Sequence[str]) -> str:
    """Return the flag of the learning rate that a variant takes."""
    return "--learning-rate" if any(word in EVERY_ITERATION for word in flags) else "--local-lr"


# --- runs of equal time ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    """A variant that is compared after equal time.

    Attributes:
        flags: of the simulation.
        factor: factor of the setting's learning rate.
        weights: sizes of the workers' shares in relation to each other; "" for equal ones.
        throughput: samples of all workers in a second of virtual time.
    """

    flags: tuple[str, ...] = ()
    factor: float = 1.0
    weights: str = ""
    throughput: float = 3700.0


_MOMENTUM = ("--outer-momentum=0.9", "--global-lr=0.3")
#: Local iterations of the paper's workers in a round of plain ESync, in the order of their ranks.
_SPEEDS = "117,117,1,117,117,1"
#: FedProx and SCAFFOLD with ESync's numbers of local iterations.
_CLOCKED = f"--mode={Path(__file__).resolve().with_name('clocked.py')}:Clocked"
#: Throughput of today's variants whose rounds are not those of plain ESync.
_THROUGHPUTS = {
    "sync": 59, "sync-fp16": 77, "sync-2bit": 105, "ssp": 60, "local-sgd": 101, "diloco": 101,
    "dylu": 3300, "esync-fp16": 5200, "esync-fp16-samples": 5200, "esync-2bit": 7900, "esync-2bit-samples": 7900,
    "esync-overlap": 8500, "esync-overlap-fp16-samples": 8500,
}  # fmt: skip
_TODAY = {name: Timed(flags, throughput=_THROUGHPUTS.get(name, 3700)) for name, flags in VARIANTS.items()}
#: Name → variant; a budget is spent in this order.
EQUAL_TIME: dict[str, Timed] = {
    SYNC: _TODAY[SYNC],
    PLAIN: _TODAY[PLAIN],
    "esync-momentum": Timed(_MOMENTUM),
    "esync-speed": Timed(weights=_SPEEDS),
    "local-sgd": _TODAY["local-sgd"],
    "local-sgd-30": Timed(("--mode=local-sgd", "--local-iterations=30"), throughput=107),
    "fedprox-10": Timed(("--mode=fedprox", "--local-iterations=10"), throughput=101),
    "scaffold-10": Timed(("--mode=scaffold", "--local-iterations=10"), throughput=93),
    "scaffold-30": Timed(("--mode=scaffold", "--local-iterations=30"), throughput=104),
    "esync-fedprox-0.1": Timed((f"{_CLOCKED}FedProx", "--prox-mu=0.1")),
    "esync-fedprox-1": Timed((f"{_CLOCKED}FedProx", "--prox-mu=1")),
    "esync-scaffold": Timed((f"{_CLOCKED}SCAFFOLD",), throughput=2340),
    "esync-speed-momentum": Timed(_MOMENTUM, weights=_SPEEDS),
    "esync-half-rate": Timed(factor=0.5),
    "esync-quarter-rate": Timed(factor=0.25),
    "esync-slowest-2": Timed(("--slowest-iterations=2",), throughput=5190),
    **{name: variant for name, variant in _TODAY.items() if name not in (SYNC, PLAIN, "local-sgd")},
}
#: Factors of a variant's learning rate that are tried.
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Seed with which rates are tuned; results are those of the seeds after it.
TUNING_SEED = 0
#: Share of the training images that is kept back for tests while rates are tuned: 5,000 of 60,000.
HELD_OUT_SHARE = 1 / 12


@dataclass(frozen=True)
class EqualTimeRun:
    """One simulation of equal time.

    Attributes:
        variant: one of EQUAL_TIME.
        data: "iid" or "niid".
        seed: of data and weights.
        setting: what is trained.
        minutes: its length in virtual time.
        factor: further factor of the learning rate.
        held_out: whether it is tested on training images that are kept back.
    """

    variant: str
    data: str
    seed: int
    setting: Setting
    minutes: float
    factor: float = 1.0
    held_out: bool = False

    @property
    def name(self) -> str:
        """Stem of its files."""
        more = "-held-out" if self.held_out else ""
        return f"{self.variant}-{self.data}-{self.minutes:g}min-x{self.factor:g}-seed{self.seed}{more}"

    def words(self, given: argparse.Namespace) -> list[str]:
        """Return the command line. It is evaluated in every round, on all test images."""
        variant, setting = EQUAL_TIME[self.variant], self.setting
        partition = ":".join(filter(None, (PARTITIONS[self.data], variant.weights)))
        rate = setting.rate * variant.factor * self.factor
        words = [sys.executable, "-m", "esync.simulate", setting.file, *variant.flags]
        words += [f"--network={setting.network}"] if setting.network else []
        words += [f"{rate_flag(variant.flags)}={rate:g}", f"--seed={self.seed}", f"--partition={partition}"]
        words += [f"--max-time={60 * self.minutes:g}", "--eval-duration=1", "--no-logs"]
        words += [f"--dataset=npz:{held_out_file(given.out).resolve()}"] if self.held_out else []
        return [*words, f"--json={result_file(given.out, self)}"]

    def planned(self) -> float:
        """Return the core-seconds that it costs by estimate."""
        variant = EQUAL_TIME[self.variant]
        samples = 60 * self.minutes * variant.throughput
        slow = 2 if any(word.startswith("--slowest-iterations") for word in variant.flags) else 1
        # One evaluation of a round that has at least one iteration of the slow devices.
        evaluated = TEST_IMAGES * 60 * self.minutes / (3.5 * slow + 3)
        return OVERHEAD * self.setting.gradient * (samples + EVALUATION * evaluated) / BATCH_SIZE


def equal_time_runs(given: argparse.Namespace, setting: Setting) -> list[EqualTimeRun]:
    """Return the runs in the order in which a budget is spent on them, by class first.

    With `tune` they are those that find each variant's learning rate, else those that are reported,
    at the rates that have been found; where none has been, at the setting's.
    """
    variants = [name for name in EQUAL_TIME if name in given.variants]
    kinds = ("niid", "iid")
    if given.tune:
        return [run for data in kinds for name in variants for run in _tuning(given, name, data, setting)]
    return [
        EqualTimeRun(name, data, seed, setting, given.minutes, tuned(given, name, data, setting) or 1.0)
        for seed in range(TUNING_SEED + 1, TUNING_SEED + 1 + given.seeds)
        for data in kinds
        for name in variants
    ]


def _tuning(given: argparse.Namespace, variant: str, data: str, setting: Setting) -> list[EqualTimeRun]:
    settings = (variant, data, TUNING_SEED, setting, given.minutes)
    return [EqualTimeRun(*settings, factor, held_out=True) for factor in FACTORS]


def tuned(given: argparse.Namespace, variant: str, data: str, setting: Setting) -> float | None:
    """Return the factor of the learning rate that is best on the images kept back.

    That is the one with the highest mean of the accuracies at the times of the table and over the
    last third. None: not all factors have been tried.
    """
    runs = [
        EqualTimeRun(variant, data, TUNING_SEED, setting, given.minutes, factor, held_out=True) for factor in FACTORS
    ]
    finished = results(given.out)
    if any(run.name not in finished for run in runs):
        return None
    curves = {run.factor: at_times(finished[run.name], given.minutes).values() for run in runs}
    scores = {
        factor: statistics.fmean(each for each in curve if not math.isnan(each)) for factor, curve in curves.items()
    }
    return max(scores, key=lambda factor: scores[factor])


#: Minutes after which accuracies are compared, as far as a run lasts.
MINUTES = (1.0, 2.0, 5.0, 10.0, 30.0)
#: Heading of the mean over the last third of the time.
LAST = "last third"


def at_times(result: Mapping[str, Any], minutes: float) -> dict[str, float]:
    """Return heading → accuracy at each of MINUTES, and the mean of the last third of the time.

    It is that of the last evaluation until then; NaN if there was none.
    """
    found = {}
    for minute in (each for each in MINUTES if each <= minutes):
        until = [accuracy for _, seconds, accuracy in result["accuracies"] if seconds <= 60 * minute]
        found[f"{minute:g} min"] = until[-1] if until else math.nan
    return {**found, LAST: mean_of_last(result, 1 / 3)}


def held_out_file(folder: Path) -> Path:
    """Return the file of the data set whose test images are training images kept back."""
    return folder / "held-out.npz"


def write_held_out(folder: Path) -> None:
    """Write that data set of Fashion-MNIST's training images, unless it is there.

    The others keep their order, so that contiguous shares are what they were.
    """
    file = held_out_file(folder)
    if file.exists():
        return
    data = load("fashion-mnist")
    number = round(HELD_OUT_SHARE * len(data.train_labels))
    kept_back = np.zeros(len(data.train_labels), bool)
    kept_back[np.random.default_rng(TUNING_SEED).permutation(len(kept_back))[:number]] = True
    images, labels = data.train_images, data.train_labels
    content = BytesIO()  # savez does not tell that a disk is full
    np.savez(
        content,
        x_train=images[~kept_back],
        y_train=labels[~kept_back],
        x_test=images[kept_back],
        y_test=labels[kept_back],
    )
    write_atomically(file, content.getvalue())
