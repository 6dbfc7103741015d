"""What this project adds to ESync, on the paper's cluster in virtual time: `python benchmarks/beyond_paper.py`.

Simulates clusters/paper.yaml (ResNet-18-v1, 1 Gbit/s) with real gradients on Fashion-MNIST: plain ESync, and ESync with
other means, smaller exchanges and hidden ones, its relatives, i.i.d. and by class, each beside SSGD with the same
exchanges. A run ends at an accuracy of 0.8, or after `--epochs` times the training set; with `--to-the-end` always
there, so that final accuracies can be compared. Efficiency and computing time ratio come from simulations without
gradients of 100 rounds each. `--network mlp` takes a stand-in of which a run takes seconds (clusters/paper-mlp.yaml).
A run that is done is not done again.

Writes into `--out`: runs.json with the result of every run, and table.md. With `--to-the-end` the table has every
variant over its seeds, and whether it holds up: where its time to an accuracy of 0.8 is no longer than plain ESync's on
the same data (means over the seeds, all of which get there), and its final accuracy is not more than one standard
deviation of plain ESync's below. Where plain ESync does not get to 0.8 with all seeds, the highest of 0.7, 0.6 and 0.5
that it gets to stands for it.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from harness import program
from harness.simulations import (
    PARTITIONS,
    RATE,
    TARGET,
    carry_out,
    gather,
    result_file,
    results,
)

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
    "esync-topk": ("--compression=topk:0.01",),
    "esync-topk-samples": ("--compression=topk:0.01", "--weighting=samples"),
    "esync-topk-back": ("--compression=topk:0.01:0.01",),
    "esync-topk-back-samples": ("--compression=topk:0.01:0.01", "--weighting=samples"),
    "esync-overlap": ("--overlap",),
    "esync-overlap-fp16-samples": ("--overlap", "--compression=fp16", "--weighting=samples"),
    "esync-overlap-topk-back-samples": ("--overlap", "--compression=topk:0.01:0.01", "--weighting=samples"),
    "sync": ("--mode=sync",),
    "sync-fp16": ("--mode=sync", "--compression=fp16"),
    "sync-2bit": ("--mode=sync", "--compression=2bit"),
    "sync-topk": ("--mode=sync", "--compression=topk:0.01"),
    "local-sgd": ("--mode=local-sgd",),
    "diloco": ("--mode=diloco",),
    "ssp": ("--mode=ssp",),
    "dylu": ("--mode=dylu",),
}
#: What the others are compared with.
PLAIN = "esync"
#: Where plain ESync does not get to the target.
LOWER = ("0.7", "0.6", "0.5")
#: Flag of the compression → the SSGD that exchanges the same.
SSGD = {"--compression=fp16": "sync-fp16", "--compression=2bit": "sync-2bit", "--compression=topk": "sync-topk"}
#: Modes that exchange in every iteration: rounds between two evaluations of a run to the end.
EVERY_ITERATION = {"--mode=sync": 8, "--mode=ssp": 8}


@dataclass(frozen=True)
class Setting:
    """What is trained.

    Attributes:
        file: the cluster's description.
        rate: learning rate of all variants, on the gradient summed over the batch.
    """

    file: str
    rate: float


SETTINGS = {
    "resnet18-v1": Setting("clusters/paper.yaml", RATE),
    "mlp": Setting("clusters/paper-mlp.yaml", 0.001),
}


@dataclass(frozen=True)
class Run:
    """One simulation.

    Attributes:
        variant: one of VARIANTS.
        data: "iid" or "niid".
        seed: of data and weights.
        timing: without gradients, 100 rounds.
        setting: what is trained.
        whole: it goes on after the target accuracy.
    """

    variant: str
    data: str = "iid"
    seed: int = 0
    timing: bool = False
    setting: Setting = SETTINGS["resnet18-v1"]
    whole: bool = False

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.variant}-timing" if self.timing else f"{self.variant}-{self.data}-seed{self.seed}"

    def words(self, given: argparse.Namespace) -> list[str]:
        """The command line."""
        words = [sys.executable, "-m", "esync.simulate", self.setting.file, *VARIANTS[self.variant]]
        words += [f"--json={result_file(given.out, self)}", "--no-logs"]
        if self.timing:
            return [*words, "--numerics=none", "--rounds=100"]
        every = next((EVERY_ITERATION[word] for word in words if word in EVERY_ITERATION), None)
        rates = "--local-lr" if every is None else "--learning-rate"
        words += [f"{rates}={self.setting.rate:g}", f"--seed={self.seed}", f"--partition={PARTITIONS[self.data]}"]
        words += [f"--epochs={given.epochs:g}", f"--test-images={given.test_images}"]
        if not self.whole:
            return [*words, f"--target-accuracy={TARGET}"]
        return [*words, f"--eval-duration={every or 1}"]


def runs(variants: Sequence[str], seeds: int, setting: Setting, whole: bool) -> list[Run]:
    """All of them, in the order of their worth."""
    chosen = [Run(variant, timing=True, setting=setting) for variant in variants]
    for seed in range(seeds):
        for data in PARTITIONS:
            chosen += [Run(variant, data, seed, setting=setting, whole=whole) for variant in variants]
    return chosen


def here(chosen: Sequence[Run], given: argparse.Namespace) -> bool:
    """Do what is not done yet, one after the other in this process; whether all went well."""
    from esync.simulate.__main__ import main as simulate

    gather(given.out, chosen)
    finished = results(given.out)
    failed = 0
    for number, run in enumerate(chosen, start=1):
        if run.name in finished:
            continue
        begun = time.process_time()
        _, _, _, *words = run.words(given)
        with redirect_stdout(StringIO()):
            failed += simulate([*words, "--quiet"]) != 0
        gather(given.out, [run])
        print(f"{number} of {len(chosen)}: {run.name}, {time.process_time() - begun:.0f} core-seconds", flush=True)
    return not failed


def table(out: Path, chosen: Sequence[Run]) -> str:
    """What came out, as Markdown."""
    lines = [
        "| run | efficiency | computing | MB sent a round | to 0.8 | rounds | accuracy then |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    finished = results(out)
    lines += [_of_one(run, finished[run.name]) for run in chosen if run.name in finished]
    return "\n".join(lines) + "\n"


def _of_one(run: Run, result: dict[str, Any]) -> str:
    ratios = [device["computing_ratio"] for device in result["devices"]]
    sent = sum(result["traffic"][server]["received"] for server in result["servers"]) / result["rounds"] / 1e6
    at = result["time_to"].get(TARGET)
    accuracy = result["final_accuracy"]
    return (
        f"| {run.name} | {result['efficiency']:.3f} | {min(ratios):.3f}–{max(ratios):.3f} | {sent:.1f} | "
        f"{'–' if at is None else f'{at:.0f} s'} | {result['rounds']} | "
        f"{'–' if accuracy is None or math.isnan(accuracy) else f'{accuracy:.3f}'} |"
    )


@dataclass(frozen=True)
class Variant:
    """One variant on one kind of data.

    Attributes:
        results: seed → its run, as JSON.
        timing: its run without gradients.
    """

    results: Mapping[int, Mapping[str, Any]]
    timing: Mapping[str, Any]

    def times(self, target: str) -> list[float]:
        """Seconds to an accuracy, of those seeds that get there."""
        found = [result["time_to"].get(target) for result in self.results.values()]
        return [float(each) for each in found if each is not None]

    def time(self, target: str) -> float | None:
        """Their mean; None where not all seeds get there."""
        times = self.times(target)
        return statistics.fmean(times) if times and len(times) == len(self.results) else None

    @property
    def finals(self) -> list[float]:
        """Final accuracies, on all test images."""
        return [float(result["final_accuracy"]) for result in self.results.values()]

    def of(self, seeds: Iterable[int]) -> "Variant":
        """The same with these seeds only."""
        return Variant({seed: self.results[seed] for seed in seeds if seed in self.results}, self.timing)


def compared(out: Path, variants: Mapping[str, Sequence[str]], seeds: int) -> str:
    """What came out, as Markdown: exchanges from the runs without gradients, then a table for each kind of data."""
    finished = results(out)
    done = {name: finished[f"{name}-timing"] for name in variants if f"{name}-timing" in finished}
    lines = ["| run | efficiency | computing | MB received by the server in a round |", "| --- | --- | --- | --- |"]
    lines += [_exchanges(name, timing) for name, timing in done.items()]
    for data in PARTITIONS:
        found = {name: _over_seeds(finished, name, data, seeds, timing) for name, timing in done.items()}
        plain = found.get(PLAIN)
        if plain is None or not plain.results:
            continue
        target = next((each for each in (TARGET, *LOWER) if plain.time(each) is not None), TARGET)
        lines += [
            "",
            f"| {data} | seeds | to {target} | SSGD alike ÷ this | final accuracy | holds up |",
            "| --- | --- | --- | --- | --- | --- |",
            *(_compared(name, variants[name], found, target) for name, each in found.items() if each.results),
        ]
    return "\n".join(lines) + "\n"


def verdict(variant: Variant, plain: Variant, target: str) -> str:
    """Whether a variant holds up to plain ESync with the seeds that both have, and if not, in what."""
    common = sorted(set(variant.results) & set(plain.results))
    variant, plain = variant.of(common), plain.of(common)
    failures = []
    time, bound = variant.time(target), plain.time(target)
    if time is None:
        failures.append(f"{target} not reached" if not variant.times(target) else f"{target} not always reached")
    elif bound is not None and time > bound:
        failures.append("later")
    if statistics.fmean(variant.finals) < statistics.fmean(plain.finals) - _deviation(plain.finals):
        failures.append("less accurate")
    return f"**no**: {', '.join(failures)}" if failures else "yes"


def _over_seeds(
    finished: Mapping[str, Mapping[str, Any]], name: str, data: str, seeds: int, timing: Mapping[str, Any]
) -> Variant:
    found = {seed: finished.get(f"{name}-{data}-seed{seed}") for seed in range(seeds)}
    return Variant({seed: result for seed, result in found.items() if result is not None}, timing)


def _exchanges(name: str, timing: Mapping[str, Any]) -> str:
    ratios = [device["computing_ratio"] for device in timing["devices"]]
    received = sum(timing["traffic"][server]["received"] for server in timing["servers"]) / timing["rounds"]
    return f"| {name} | {timing['efficiency']:.3f} | {min(ratios):.3f}–{max(ratios):.3f} | {received / 1e6:.3g} |"


def _compared(name: str, flags: Sequence[str], found: Mapping[str, Variant], target: str) -> str:
    variant, ssgd = found[name], found.get(_ssgd(flags))
    times, time = variant.times(target), variant.time(target)
    alike = None if ssgd is None else ssgd.of(variant.results).time(target)
    reached = f"{_spread(times, 0)} s" if times else "–"
    if 0 < len(times) < len(variant.results):
        reached += f" ({len(times)} of {len(variant.results)})"
    faster = f"{alike / time:.1f}" if alike is not None and time is not None else "–"
    holds = "–" if name == PLAIN else verdict(variant, found[PLAIN], target)
    return f"| {name} | {len(variant.results)} | {reached} | {faster} | {_spread(variant.finals, 3)} | {holds} |"


def _ssgd(flags: Iterable[str]) -> str:
    return next((name for start, name in SSGD.items() for flag in flags if flag.startswith(start)), "sync")


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.fmean(values):.{digits}f} ± {_deviation(values):.{digits}f}"


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def main(words: Sequence[str] | None = None) -> int:
    """Run, write the table."""
    parser = program.bare_parser(__doc__)
    parser.add_argument("--network", choices=SETTINGS, default="resnet18-v1")
    parser.add_argument("--to-the-end", action="store_true", help="go on after an accuracy of 0.8")
    parser.add_argument("--seeds", type=int, default=1, help="of every run (default: %(default)s)")
    parser.add_argument("--epochs", type=float, default=3.0, help="samples of all workers (default: %(default)s)")
    parser.add_argument("--test-images", type=int, default=2500, help="of an evaluation (default: %(default)s)")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="(default: all)")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--here", action="store_true", help="one at a time, in this process: saves MXNet's start")
    parser.add_argument("--jobs", type=int, default=2, help="simulations at a time (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="(default: results/beyond, or results/beyond-NETWORK)")
    given = parser.parse_args(words)
    more = "" if given.network == "resnet18-v1" else f"-{given.network}"
    given.out = given.out or Path(f"results/beyond{more}")
    given.out.mkdir(parents=True, exist_ok=True)
    everything = runs(given.variants, given.seeds, SETTINGS[given.network], given.to_the_end)
    chosen = [run for run in everything if given.only in run.name]
    well = here(chosen, given) if given.here else carry_out(chosen, given)
    told = compared(given.out, VARIANTS, given.seeds) if given.to_the_end else table(given.out, everything)
    (given.out / "table.md").write_text(told)
    print((given.out / "table.md").read_text())
    return 0 if well else 1


if __name__ == "__main__":
    program.run(main)
