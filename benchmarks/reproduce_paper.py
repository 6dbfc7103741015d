"""The ESync paper's experiments in virtual time: `python benchmarks/reproduce_paper.py [--full] [--parity]`.

Simulates the paper's cluster (clusters/paper*.yaml, 1 Gbit/s) with real gradients on Fashion-MNIST: ESync, SSGD, ASGD
and DC-ASGD, i.i.d. and by class; SSGD also at two and four times the published learning rate, until it is at 0.8. All
others train for the same number of samples, `--epochs` times the training set over all workers (ESync to the end of its
round), two hours of virtual time at most as in the paper. A run that is done is not done again, so this can be stopped
at any time and started anew.

Writes into `--out`: a JSON file for every run, its round files (logs/) and their summaries (summaries/, all that the
figures need), figures for each network, and table.md. `--parity` adds ESync and sequential SGD with five seeds each,
sequential SGD with exactly the samples that ESync had.
"""

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from esync.files import write_whole

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
#: What the paper's Table 1 says: speedup over SSGD, accuracy of ESync, of sequential SGD.
PAPER = {
    "resnet18-v1": (7, 0.926, 0.919),
    "mobilenet-v1": (2, 0.905, 0.906),
    "resnet50-v1": (4, 0.914, 0.910),
    "resnet50-v2": (6, 0.917, 0.918),
    "alexnet": (27, 0.932, 0.928),
    "inception-v3": (7, 0.940, 0.932),
}
PARTITIONS = {"iid": "contiguous", "niid": "class"}
#: Rounds between two evaluations: an evaluation costs as much as some 15 gradients of 64 images do for 2,500 of them.
EVALUATE_EVERY = {"esync": 1, "sync": 10, "async": 10, "dcasgd": 10}
#: Seconds between two lines of progress.
TELL_EVERY = 10.0
#: Student's t, 97.5 %, by degrees of freedom from 1.
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


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
    """

    network: str
    algorithm: str
    data: str = "iid"
    factor: int = 1
    seed: int = 0
    parity: bool = False
    free: bool = False

    @property
    def name(self) -> str:
        """Of its files."""
        more = f"-x{self.factor}" if self.factor != 1 else ""
        more += f"-seed{self.seed}" if self.parity else ""
        return f"{self.network}-{self.algorithm}-{self.data}{more}{'-free' if self.free else ''}"

    @property
    def after(self) -> "Run | None":
        """The run that says how many samples this one has."""
        return replace(self, algorithm="esync") if self.parity and self.algorithm == "local" else None

    def words(self, out: Path, epochs: float, images: int) -> list[str]:
        """The command line."""
        file = "paper" if self.network == NETWORKS[0] else f"paper-{self.network}"
        rate = "--local-lr" if self.algorithm == "esync" else "--learning-rate"
        words = [sys.executable, "-m", "esync.simulate", f"clusters/{file}.yaml", *ALGORITHMS[self.algorithm]]
        words += [f"--partition={PARTITIONS[self.data]}", f"{rate}={RATE * self.factor:g}", f"--seed={self.seed}"]
        words += [f"--json={out / self.name}.json", "--overwrite"]
        if self.free:
            return [*words, "--numerics=none", "--no-logs", "--rounds=100", "--free-network"]
        if self.after:
            epochs = json.loads((out / f"{self.after.name}.json").read_text())["samples"] / TRAINING_IMAGES
        if self.parity:
            never = 10**9
            return [*words, f"--epochs={epochs:.9g}", f"--eval-duration={never}", "--no-logs", f"--max-time={never}"]
        kind = "logs" if self.factor == 1 else f"logs-x{self.factor}"
        every = EVALUATE_EVERY[self.algorithm]
        words += [f"--epochs={epochs:g}", f"--eval-duration={every}", f"--test-images={images}"]
        if self.factor != 1:
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


def carry_out(chosen: Sequence[Any], given: argparse.Namespace, lacks: Callable[[Any], str] = lambda run: "") -> bool:
    """Do what is not done yet, `--jobs` at a time; whether all went well. Those that still lack something wait."""
    out: Path = given.out
    waiting = [run for run in chosen if not (out / f"{run.name}.json").exists()]
    done, failed = len(chosen) - len(waiting), 0
    cores = len(os.sched_getaffinity(0))
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, cores // given.jobs))}
    under_way: dict[Any, subprocess.Popen[bytes]] = {}
    told = 0.0
    try:
        while waiting or under_way:
            while waiting and len(under_way) < given.jobs:
                run = next((run for run in waiting if not lacks(run)), None)
                if run is None and not under_way:
                    print(f"{waiting[0].name} needs {lacks(waiting[0])}, which is not there", flush=True)
                    return False
                if run is None:
                    break
                waiting.remove(run)
                with (out / f"{run.name}.log").open("wb") as log:
                    words = run.words(out, given.epochs, given.test_images)
                    under_way[run] = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
            for run, process in list(under_way.items()):
                if process.poll() is not None:
                    del under_way[run]
                    done, failed = done + (process.returncode == 0), failed + (process.returncode != 0)
                    print(f"{done} of {len(chosen)} done: {run.name}: {_last_line(out, run)}", flush=True)
            if time.monotonic() - told > TELL_EVERY:
                told = time.monotonic()
                for run in under_way:
                    print(f"{done} of {len(chosen)} done; {run.name}: {_last_line(out, run)}", flush=True)
            time.sleep(0.5)
    finally:
        for process in under_way.values():
            process.terminate()
        for process in under_way.values():
            process.wait()
    return not failed


def _last_line(out: Path, run: Any) -> str:
    lines = (out / f"{run.name}.log").read_text(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "begins")


def draw(out: Path, networks: Sequence[str]) -> None:
    """Summaries and figures of what there is."""
    for network in networks:
        if (out / "logs" / network).is_dir():
            words = ["logs_tools/summarize.py", "-b", str(out / "logs"), "-n", network]
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        for summary in (out / "logs" / network).glob("*/*.json"):
            kept = out / "summaries" / summary.relative_to(out / "logs")
            write_whole(kept, summary.read_bytes())
        if (out / "summaries" / network).is_dir():
            words = ["logs_tools/plot.py", "-b", str(out / "summaries"), "-n", network, "--out", str(out / network)]
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)


def table(out: Path, chosen: Sequence[Run]) -> str:
    """What came out, as Markdown."""
    results = {run: _result(out, run) for run in chosen}
    lines = [
        "| run | samples/s | efficiency | MB/s at the server | computing | to 0.8 | final accuracy |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_row(run, result) for run, result in results.items() if result and not run.parity]
    lines += ["", "| network | speedup, published rate | SSGD at its best rate | paper | final, ESync | paper |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for network in dict.fromkeys(run.network for run in chosen):
        esync = results.get(Run(network, "esync"))
        syncs = {factor: results.get(Run(network, "sync", factor=factor)) for factor in (1, 2, 4)}
        if esync and syncs[1]:
            best = min((_time_to(each), factor) for factor, each in syncs.items() if each)
            paper = PAPER[network]
            lines.append(
                f"| {network} | {_ratio(_time_to(syncs[1]), _time_to(esync))} | {_ratio(best[0], _time_to(esync))} "
                f"(×{best[1]}) | {paper[0]} | {_accuracy(esync)} | {paper[1]} |"
            )
    return "\n".join([*lines, "", *parity(results)]) + "\n"


def parity(results: dict[Run, dict[str, Any] | None]) -> list[str]:
    """Final accuracies of ESync beside those of sequential SGD."""
    found = {
        algorithm: {run.seed: each["final_accuracy"] for run, each in results.items() if run.parity and each
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
    half = STUDENT[min(len(seeds) - 2, len(STUDENT) - 1)] * statistics.stdev(differences) / math.sqrt(len(seeds))
    return [*lines, "", f"Difference {statistics.fmean(differences):+.4f} ± {half:.4f} (95 %, pairs of equal seed)."]


def _result(out: Path, run: Run) -> dict[str, Any] | None:
    path = out / f"{run.name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _row(run: Run, result: dict[str, Any]) -> str:
    rate = sum(result["traffic"][server]["received"] for server in result["servers"]) / result["seconds"] / 1e6
    ratios = [device["computing_ratio"] for device in result["devices"]]
    reached = _time_to(result)
    return (
        f"| {run.name} | {result['throughput']:.0f} | {result['efficiency']:.3f} | {rate:.1f} in | "
        f"{min(ratios):.3f}–{max(ratios):.3f} | {f'{reached:.0f} s' if reached < math.inf else '–'} | "
        f"{_accuracy(result)} |"
    )


def _accuracy(result: dict[str, Any]) -> str:
    value = result["final_accuracy"]
    return "–" if value is None else f"{value:.3f}"


def _time_to(result: dict[str, Any]) -> float:
    at = result["time_to"].get(TARGET)
    return math.inf if at is None else float(at)


def _ratio(slow: float, fast: float) -> str:
    if fast == math.inf:
        return "–"
    return f"{slow / fast:.1f}" if slow < math.inf else "not reached by SSGD"


def main(words: Sequence[str] | None = None) -> int:
    """Run, draw, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="four more networks")
    parser.add_argument("--parity", action="store_true", help="ESync and sequential SGD with several seeds, too")
    parser.add_argument("--seeds", type=int, default=5, help="of --parity (default: %(default)s)")
    parser.add_argument("--epochs", type=float, default=2.0, help="samples of all workers (default: %(default)s)")
    parser.add_argument("--test-images", type=int, default=2500, help="of an evaluation (default: %(default)s)")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="simulations at a time (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/reproduction"))
    parser.add_argument("--list", action="store_true", help="name the runs and whether they are done; do nothing")
    given = parser.parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # takes the simulations with it, as Ctrl-C does
    everything = runs(given.full, given.parity, given.seeds)
    chosen = [run for run in everything if given.only in run.name]
    if given.list:
        for run in chosen:
            print(f"{'done' if (given.out / f'{run.name}.json').exists() else '–':5} {run.name}")
        return 0

    def lacks(run: Run) -> str:
        there = run.after is None or (given.out / f"{run.after.name}.json").exists()
        return "" if there else "the number of samples of ESync's run"

    well = carry_out(chosen, given, lacks)
    draw(given.out, list(dict.fromkeys(run.network for run in chosen)))
    (given.out / "table.md").write_text(table(given.out, everything))
    print((given.out / "table.md").read_text())
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
