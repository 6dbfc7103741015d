"""The ESync paper's experiments in virtual time: `python benchmarks/reproduce_paper.py [--full] [--parity]`.

Simulates the paper's cluster (clusters/paper*.yaml, 1 Gbit/s) with real gradients on Fashion-MNIST: ESync, SSGD, ASGD
and DC-ASGD, i.i.d. and by class; SSGD also at two and four times the published learning rate, until it is at 0.8. All
others train for the same number of samples, `--epochs` times the training set over all workers (ESync to the end of its
round), two hours of virtual time at most as in the paper. An i.i.d. one that is not at 0.8 by then is followed by a
longer one that goes on until it is, `--most-epochs` at most. A run that is done is not done again, so this can be
stopped at any time and started anew.

Writes into `--out`: runs.json with the result of every run, their round files (logs/) and the summaries of these
(summaries/, all that the figures need), figures for each network, and table.md. `--parity` adds ESync and sequential
SGD with five seeds each, sequential SGD with exactly the samples that ESync had.

`--before FOLDER --figure FILE` runs nothing: it draws the accuracy of runs of an earlier version, whose results are in
FOLDER, beside that of the same runs in `--out`, a panel each.
"""

import argparse
import math
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import interval
from harness.simulations import PARTITIONS, RATE, TARGET, carry_out, result_file, results

from esync.runtime.files import write_atomically

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
#: Rounds between two evaluations: an evaluation costs as much as some 15 gradients of 64 images do
#: for 2,500 of them.
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
        parity: it is one of those that compare final accuracies: evaluated at its end only, on all
            images.
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
        words += [f"--json={result_file(out, self)}", "--overwrite"]
        if self.free:
            return [*words, "--numerics=none", "--no-logs", "--rounds=100", "--free-network"]
        if self.after:
            samples = results(out)[self.after.name]["samples"]
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


def time_to_target(result: dict[str, Any]) -> float:
    """Virtual seconds until it was at 0.8; infinite where it never was."""
    at = result["time_to"].get(TARGET)
    return math.inf if at is None else float(at)


def to_continue(out: Path, chosen: Iterable[Run]) -> list[Run]:
    """The longer runs in place of those that are done and did not come to 0.8."""
    finished = results(out)
    found = [(run.continued, finished.get(run.name)) for run in chosen]
    return [longer for longer, result in found if longer and result and time_to_target(result) == math.inf]


# --- the table ------------------------------------------------------------------------------------

#: What the paper's Table 1 says: speedup over SSGD, accuracy of ESync, of sequential SGD.
PAPER = {
    "resnet18-v1": (7, 0.926, 0.919),
    "mobilenet-v1": (2, 0.905, 0.906),
    "resnet50-v1": (4, 0.914, 0.910),
    "resnet50-v2": (6, 0.917, 0.918),
    "alexnet": (27, 0.932, 0.928),
    "inception-v3": (7, 0.940, 0.932),
}


def table(out: Path, chosen: Sequence[Run]) -> str:
    """What came out, as Markdown."""
    finished = results(out)
    found = {run: finished.get(run.name) for each in chosen for run in (each, each.continued) if run}
    lines = [
        "| run | samples/s | efficiency | MB/s at the server | computing | to 0.8 | final accuracy |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_row(run, result) for run, result in found.items() if result and not run.parity]
    lines += ["", "| network | speedup, published rate | SSGD at its best rate | paper | final, ESync | paper |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for network in dict.fromkeys(run.network for run in chosen):
        esync = _longest(found, Run(network, "esync"))
        syncs = {factor: _longest(found, Run(network, "sync", factor=factor)) for factor in (1, 2, 4)}
        if esync and syncs[1]:
            fast, slow = time_to_target(esync), time_to_target(syncs[1])
            best, factor = min((time_to_target(each), factor) for factor, each in syncs.items() if each)
            speedup, accuracy = PAPER[network][:2]
            lines.append(
                f"| {network} | {_ratio(slow, fast)} | {_ratio(best, fast)} (×{factor}) | {speedup} | "
                f"{_accuracy(esync)} | {accuracy} |"
            )
    return "\n".join([*lines, "", *parity(found)]) + "\n"


def parity(finished: dict[Run, dict[str, Any] | None]) -> list[str]:
    """Final accuracies of ESync beside those of sequential SGD."""
    found = {
        algorithm: {run.seed: each["final_accuracy"] for run, each in finished.items() if run.parity and each
                    and run.algorithm == algorithm}
        for algorithm in ("esync", "local")
    }  # fmt: skip
    seeds = sorted(set(found["esync"]) & set(found["local"]))
    if len(seeds) < 2:
        return []
    lines = ["| algorithm | seeds | mean | standard deviation |", "| --- | --- | --- | --- |"]
    for algorithm, name in (("esync", "ESync"), ("local", "sequential SGD")):
        values = [found[algorithm][seed] for seed in seeds]
        mean, deviation = statistics.fmean(values), statistics.stdev(values)
        lines.append(f"| {name} | {len(seeds)} | {mean:.4f} | {deviation:.4f} |")
    differences = [found["esync"][seed] - found["local"][seed] for seed in seeds]
    mean, half = interval(differences)
    return [*lines, "", f"Difference {mean:+.4f} ± {half:.4f} (95 %, pairs of equal seed)."]


def _longest(finished: dict[Run, dict[str, Any] | None], run: Run) -> dict[str, Any] | None:
    return (finished.get(run.continued) if run.continued else None) or finished.get(run)


def _row(run: Run, result: dict[str, Any]) -> str:
    rate = sum(result["traffic"][server]["received"] for server in result["servers"]) / result["seconds"] / 1e6
    ratios = [device["computing_ratio"] for device in result["devices"]]
    reached = time_to_target(result)
    return (
        f"| {run.name} | {result['throughput']:.0f} | {result['efficiency']:.3f} | {rate:.1f} in | "
        f"{min(ratios):.3f}–{max(ratios):.3f} | {f'{reached:.0f} s' if reached < math.inf else '–'} | "
        f"{_accuracy(result)} |"
    )


def _accuracy(result: dict[str, Any]) -> str:
    value = result["final_accuracy"]
    return "–" if value is None else f"{value:.3f}"


def _ratio(slow: float, fast: float) -> str:
    if fast == math.inf:
        return "–"
    return f"{slow / fast:.1f}" if slow < math.inf else "not reached by SSGD"


# --- the program ----------------------------------------------------------------------------------


def draw(out: Path, networks: Sequence[str]) -> None:
    """Summaries and figures of what there is."""
    for network in networks:
        if (out / "logs" / network).is_dir():
            words = ["logs_tools/summarize.py", "-b", str(out / "logs"), "-n", network]
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        for summary in (out / "logs" / network).glob("*/*.json"):
            kept = out / "summaries" / summary.relative_to(out / "logs")
            write_atomically(kept, summary.read_bytes())
        if (out / "summaries" / network).is_dir():
            words = ["logs_tools/plot.py", "-b", str(out / "summaries"), "-n", network, "--out", str(out / network)]
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)


def draw_before_and_after(before: Path, after: Path, chosen: Sequence[Run], figure: Path) -> None:
    """Draw the accuracies of those runs that both folders have."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    curves = {"before": results(before), "after": results(after)}
    names = [run.name for run in chosen if all(run.name in each for each in curves.values())]
    if not names:
        raise SystemExit(f"{before} and {after} have none of the chosen runs in common")
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    drawn, axes = plt.subplots(rows, columns, figsize=(5.5 * columns, 3.2 * rows), sharey=True, squeeze=False)
    for panel, name in zip(axes.flat, names, strict=False):
        for (label, finished), colour in zip(curves.items(), ("0.6", "tab:blue"), strict=True):
            points = finished[name]["accuracies"]
            minutes, accuracies = [seconds / 60 for _, seconds, _ in points], [accuracy for _, _, accuracy in points]
            panel.plot(minutes, accuracies, color=colour, label=label)
        panel.set(title=name, xlabel="virtual time (min)", ylim=(0, 1))
        panel.grid(alpha=0.3)
    for row in axes:
        row[0].set_ylabel("test accuracy")
    axes[0][0].legend(loc="lower right")
    drawn.tight_layout()
    drawn.savefig(figure, dpi=110)


def main(words: Sequence[str] | None = None) -> int:
    """Run, draw, write the table."""
    parser = program.bare_parser(__doc__)
    parser.add_argument("--full", action="store_true", help="four more networks")
    parser.add_argument("--parity", action="store_true", help="ESync and sequential SGD with several seeds, too")
    parser.add_argument("--seeds", type=int, default=5, help="of --parity (default: %(default)s)")
    parser.add_argument("--epochs", type=float, default=2.0, help="samples of all workers (default: %(default)s)")
    parser.add_argument(
        "--most-epochs", type=float, default=20.0, help="of a run that is not at 0.8 before (default: %(default)s)"
    )
    parser.add_argument("--test-images", type=int, default=2500, help="of an evaluation (default: %(default)s)")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="simulations at a time (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/reproduction"))
    parser.add_argument("--list", action="store_true", help="name the runs and whether they are done; do nothing")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="of an earlier version's results, to be drawn")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="PNG file that --before draws")
    given = parser.parse_args(words)
    if (given.before is None) != (given.figure is None):
        parser.error("--before and --figure belong together")
    everything = runs(given.full, given.parity, given.seeds)
    chosen = [run for run in everything if given.only in run.name]
    if given.before:
        draw_before_and_after(given.before, given.out, chosen, given.figure)
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    if given.list:
        finished = results(given.out)
        for run in [*chosen, *to_continue(given.out, chosen)]:
            print(f"{'done' if run.name in finished else '–':5} {run.name}")
        return 0

    def lacks(run: Run) -> str:
        there = run.after is None or run.after.name in results(given.out)
        return "" if there else "the number of samples of ESync's run"

    well = carry_out(chosen, given, lacks) and carry_out(to_continue(given.out, chosen), given)
    draw(given.out, list(dict.fromkeys(run.network for run in chosen)))
    (given.out / "table.md").write_text(table(given.out, everything))
    print((given.out / "table.md").read_text())
    return 0 if well else 1


if __name__ == "__main__":
    program.run(main)
