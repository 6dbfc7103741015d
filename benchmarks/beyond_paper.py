"""What does this project add to ESync, on the paper's cluster in virtual time?

    python benchmarks/beyond_paper.py
    python benchmarks/beyond_paper.py --network mlp --minutes 30 [--tune] [--budget CORE-HOURS]

Simulates clusters/paper.yaml (ResNet-18-v1, 1 Gbit/s) with real gradients on Fashion-MNIST: plain
ESync, and ESync with other means, smaller exchanges and overlapped ones, its relatives, i.i.d. and
by class, each beside SSGD with the same exchanges. A run ends at an accuracy of 0.8, or after
`--epochs` times the training set; with `--to-the-end` always there, so that final accuracies can be
compared. Efficiency and computing time ratio come from simulations without gradients of 100 rounds
each. `--network mlp` takes a stand-in of which a run takes seconds (clusters/paper-mlp.yaml). A run
that is done is not done again.

Writes into `--out`: runs.json with the result of every run, and table.md. With `--to-the-end` the
table has every variant over its seeds, and whether it holds up: where its time to an accuracy of
0.8 is no longer than plain ESync's on the same data (means over the seeds, all of which get there),
and its final accuracy is not more than one standard deviation of plain ESync's below. Where plain
ESync does not get to 0.8 with all seeds, the highest of 0.7, 0.6 and 0.5 that it gets to stands for
it.

`--minutes` compares after equal time instead: every variant, more of them than otherwise, runs for
that much virtual time and is evaluated in every round on all test images. With `--tune` each is
run with seed 0 at a quarter, half, once, twice and four times the learning rate; 5,000 of the
training images are kept back and are its test images. Without it, the variants run with the seeds after that, on
the real test images, at the rates with the highest mean of the accuracies in the table, or at the
rate of all where there are none yet. The table has means and standard deviations over the seeds,
and when a variant is ahead of plain ESync and of SSGD by more than a standard deviation of the
difference. `--list` prints what each run is planned to cost and has cost; `--budget` leaves out the
end of the list where it costs more than that.
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

from harness import budget, equal_time, program
from harness.beyond_runs import (
    EQUAL_TIME,
    EVERY_ITERATION,
    PLAIN,
    SETTINGS,
    SYNC,
    VARIANTS,
    EqualTimeRun,
    Setting,
    equal_time_runs,
    rate_flag,
    write_held_out,
)
from harness.figures import spread, standard_deviation
from harness.simulations import (
    PARTITIONS,
    TARGET,
    add_arguments,
    carry_out,
    gather,
    only,
    result_file,
    results,
    spent,
)

from esync.runtime.files import write_atomically

#: Targets for the case that plain ESync does not reach the usual one.
LOWER = ("0.7", "0.6", "0.5")
#: Flag of the compression → the variant of SSGD with the same compression.
SSGD = {"--compression=fp16": "sync-fp16", "--compression=2bit": "sync-2bit"}


@dataclass(frozen=True)
class Run:
    """One simulation.

    Attributes:
        variant: one of VARIANTS.
        data: "iid" or "niid".
        seed: of data and weights.
        timing: whether it runs 100 rounds without gradients.
        setting: what is trained.
        whole: whether it goes on after the target accuracy.
    """

    variant: str
    data: str = "iid"
    seed: int = 0
    timing: bool = False
    setting: Setting = SETTINGS["resnet18-v1"]
    whole: bool = False

    @property
    def name(self) -> str:
        """Stem of its files."""
        return f"{self.variant}-timing" if self.timing else f"{self.variant}-{self.data}-seed{self.seed}"

    def words(self, given: argparse.Namespace) -> list[str]:
        """Return the command line."""
        words = [sys.executable, "-m", "esync.simulate", self.setting.file, *VARIANTS[self.variant]]
        words += [f"--json={result_file(given.out, self)}", "--no-logs"]
        if self.timing:
            return [*words, "--numerics=none", "--rounds=100"]
        every = next((EVERY_ITERATION[word] for word in words if word in EVERY_ITERATION), None)
        words += [
            f"{rate_flag(words)}={self.setting.rate:g}",
            f"--seed={self.seed}",
            f"--partition={PARTITIONS[self.data]}",
        ]
        words += [f"--epochs={given.epochs:g}", f"--test-images={given.test_images}"]
        if not self.whole:
            return [*words, f"--target-accuracy={TARGET}"]
        return [*words, f"--eval-duration={every or 1}"]


def runs(variants: Sequence[str], seeds: int, setting: Setting, whole: bool) -> list[Run]:
    """Return all runs, the most important ones first."""
    chosen = [Run(variant, timing=True, setting=setting) for variant in variants]
    for seed in range(seeds):
        for data in PARTITIONS:
            chosen += [Run(variant, data, seed, setting=setting, whole=whole) for variant in variants]
    return chosen


def here(chosen: Sequence[Run | EqualTimeRun], given: argparse.Namespace) -> bool:
    """Carry out the missing runs in this process; return whether all succeeded."""
    from esync.simulate.__main__ import main as simulate

    gather(given.out, chosen)
    finished = results(given.out)
    failed = 0
    for number, run in enumerate(chosen, start=1):
        if run.name in finished:
            continue
        begun = time.process_time()
        _, _, _, *words = run.words(given)
        with program.ending_at_once(), redirect_stdout(StringIO()):
            code = simulate([*words, "--quiet"])
        failed += code != 0
        gather(given.out, [run])
        told = f"{run.name}{' has failed' if code else ''}, {time.process_time() - begun:.0f} core-seconds"
        print(f"{number} of {len(chosen)}: {told}", flush=True)
    return not failed


def table(out: Path, chosen: Sequence[Run]) -> str:
    """Return the results as a table in Markdown."""
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
    """A variant on one kind of data.

    Attributes:
        results: seed → its run, as JSON.
        timing: its run without gradients.
    """

    results: Mapping[int, Mapping[str, Any]]
    timing: Mapping[str, Any]

    def times(self, target: str) -> list[float]:
        """Return the seconds to an accuracy, for those seeds that reach it."""
        found = [result["time_to"].get(target) for result in self.results.values()]
        return [float(each) for each in found if each is not None]

    def time(self, target: str) -> float | None:
        """Return their mean, or None if not all seeds reach the accuracy."""
        times = self.times(target)
        return statistics.fmean(times) if times and len(times) == len(self.results) else None

    @property
    def finals(self) -> list[float]:
        """Final accuracies, on all test images."""
        return [float(result["final_accuracy"]) for result in self.results.values()]

    def of(self, seeds: Iterable[int]) -> "Variant":
        """Return the variant with these seeds only."""
        return Variant({seed: self.results[seed] for seed in seeds if seed in self.results}, self.timing)


def compared(out: Path, variants: Mapping[str, Sequence[str]], seeds: int) -> str:
    """Return the results in Markdown.

    The first table has the exchanges in the runs without gradients; one for each kind of data
    follows.
    """
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
    """Return whether a variant holds up to plain ESync, and if not, why.

    Only seeds that both have are compared.
    """
    common = sorted(set(variant.results) & set(plain.results))
    variant, plain = variant.of(common), plain.of(common)
    failures = []
    time, bound = variant.time(target), plain.time(target)
    if time is None:
        failures.append(f"{target} not reached" if not variant.times(target) else f"{target} not always reached")
    elif bound is not None and time > bound:
        failures.append("later")
    if statistics.fmean(variant.finals) < statistics.fmean(plain.finals) - standard_deviation(plain.finals):
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
    reached = f"{spread(times, 0)} s" if times else "–"
    if 0 < len(times) < len(variant.results):
        reached += f" ({len(times)} of {len(variant.results)})"
    faster = f"{alike / time:.1f}" if alike is not None and time is not None else "–"
    holds = "–" if name == PLAIN else verdict(variant, found[PLAIN], target)
    return f"| {name} | {len(variant.results)} | {reached} | {faster} | {spread(variant.finals, 3)} | {holds} |"


def _ssgd(flags: Iterable[str]) -> str:
    return next((name for start, name in SSGD.items() for flag in flags if flag.startswith(start)), SYNC)


def _equal_time(given: argparse.Namespace) -> bool:
    """Carry out the runs of equal time and write their table; return whether all succeeded."""
    setting = SETTINGS[given.network]
    chosen = only(equal_time_runs(given, setting), given.only)
    planned, known = {run.name: run.planned() for run in chosen}, spent(given.out)
    if given.list:
        print(budget.listed(planned, known, given.budget))
        return True
    kept = budget.within(planned, known, given.budget)
    if over := budget.left_out(planned, kept):
        print(over, flush=True)
    if given.tune:
        write_held_out(given.out)
    paid = [run for run in chosen if run.name in set(kept)]
    well = here(paid, given) if given.here else carry_out(paid, given)
    _write_table(given, equal_time.table(given, setting))
    return well


def _equal_samples(given: argparse.Namespace) -> bool:
    """Carry out the runs of equal samples and write their table; return whether all succeeded."""
    everything = runs(given.variants, given.seeds, SETTINGS[given.network], given.to_the_end)
    chosen = only(everything, given.only)
    well = here(chosen, given) if given.here else carry_out(chosen, given)
    told = compared(given.out, VARIANTS, given.seeds) if given.to_the_end else table(given.out, everything)
    _write_table(given, told)
    return well


def _write_table(given: argparse.Namespace, told: str) -> None:
    write_atomically(given.out / "table.md", told.encode())
    print(told)


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exit with code 2 on bad usage."""
    parser = program.bare_parser(__doc__)
    parser.add_argument("--network", choices=SETTINGS, default="resnet18-v1")
    parser.add_argument("--to-the-end", action="store_true", help="go on after an accuracy of 0.8")
    add_arguments(parser, 1, "of every run")
    parser.add_argument("--epochs", type=float, default=3.0, help="samples of all workers (default: %(default)s)")
    parser.add_argument("--test-images", type=int, default=2500, help="of an evaluation (default: %(default)s)")
    parser.add_argument("--minutes", type=float, help="compare after this virtual time instead of equal samples")
    parser.add_argument("--tune", action="store_true", help="with --minutes: find each variant's learning rate")
    budget.add_arguments(parser)
    names = list(dict.fromkeys([*VARIANTS, *EQUAL_TIME]))
    parser.add_argument("--variants", nargs="+", choices=names, help="(default: all)")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--here", action="store_true", help="one at a time, in this process: saves MXNet's start")
    parser.add_argument("--out", type=Path, help="(default: results/beyond, with -time and -NETWORK where they apply)")
    given = parser.parse_args(words)
    if given.minutes is None and (given.tune or given.list or given.budget is not None):
        parser.error("--tune, --list and --budget are for runs of equal time: give --minutes")
    if given.minutes is not None and not 1 <= given.minutes < math.inf:
        parser.error(f"--minutes {given.minutes:g}: expected a number from 1 on")
    if given.minutes is not None and given.to_the_end:
        parser.error("--minutes and --to-the-end contradict each other: leave one of them out")
    known = VARIANTS if given.minutes is None else EQUAL_TIME
    given.variants = list(known) if given.variants is None else given.variants
    if unknown := [name for name in given.variants if name not in known]:
        parser.error(f"--variants {' '.join(unknown)}: for runs of equal time only: give --minutes")
    more = "" if given.minutes is None else "-time"
    more += "" if given.network == "resnet18-v1" else f"-{given.network}"
    given.out = given.out or Path(f"results/beyond{more}")
    return given


def main(words: Sequence[str] | None = None) -> int:
    """Carry out the runs and write the table; return the exit code."""
    given = parse_arguments(words)
    return 0 if (_equal_samples if given.minutes is None else _equal_time)(given) else 1


if __name__ == "__main__":
    program.run(main)
