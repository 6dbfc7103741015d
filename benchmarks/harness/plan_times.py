"""The time to an accuracy that `esync plan --from-logs` predicts, beside that of a simulated or launched run."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from esync.reports.runs import find_runs

from . import program
from .figures import read_figures, write_figures

MODES = ("local", "sync", "esync")
#: The mode whose logs the plan reads.
LOGGED = "esync"
#: Share by which two predicted times may differ and still count as equal.
TIE = 0.05
#: Allowed ratio of a predicted time to the measured one.
WITHIN = (0.75, 1.33)
NETWORKS = """\
import mxnet as mx
nn = mx.gluon.nn

def own_model(classes):  # of examples/own_model.py
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, kernel_size=3, padding=1, activation="relu"), nn.MaxPool2D())
    net.add(nn.Conv2D(32, kernel_size=3, padding=1, activation="relu"), nn.MaxPool2D(), nn.Dense(classes))
    return net

def starter(classes):  # of `esync init`
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, kernel_size=3, activation="relu"), nn.MaxPool2D(), nn.Dense(64, activation="relu"))
    net.add(nn.Dense(classes))
    return net

def perceptron(classes):
    net = nn.HybridSequential()
    net.add(nn.Dense(64, activation="relu"), nn.Dense(classes))
    return net
"""


@dataclass(frozen=True)
class Program:
    """A program: the network and optimizer of one, with the rate that suits one device, and a target."""

    optimizer: str
    rate: float
    batch_size: int
    target: float


PROGRAMS = {
    "own_model": Program("adam", 1e-3, 64, 0.82),
    "starter": Program("sgd", 0.004, 32, 0.82),
    "perceptron": Program("sgd", 0.1 / 32, 32, 0.82),
}
CLUSTERS: dict[str, dict[str, Any]] = {
    "unequal": {"steps": (0.05, 0.06, 0.2), "network": {"bandwidth": "1Gbit", "latency": "0.2ms"}},
    "equal": {"steps": (0.1, 0.1, 0.1, 0.1), "network": {"bandwidth": "10Gbit", "latency": "0.1ms"}},
}


@dataclass(frozen=True)
class LaunchedProgram:
    """A program of examples/, with the target that ends it.

    Attributes:
        file: in examples/.
        interval: text of its evaluation interval, which is replaced by a shorter one and the target.
        words: its flags.
        target: value of its metric.
    """

    file: str
    interval: str
    words: tuple[str, ...]
    target: float


LAUNCHED = {
    "language_model": LaunchedProgram("language_model.py", "every=10", ("--characters", "90000", "--epochs", "12"), 11),
    "fine_tuning": LaunchedProgram("fine_tuning.py", "every=10", ("--samples", "14000", "--epochs", "12"), 0.77),
    "train": LaunchedProgram("starter/train.py", "every=5", ("--epochs", "2"), 0.8),
}
#: Seconds that an iteration is padded to.
PADDED = {"unequal": (0.3, 0.36, 1.2), "equal": (0.4, 0.4, 0.4, 0.4)}
#: Number of programs that are launched at the same time.
JOBS = 2
#: Rounds between two evaluations, of simulated and of launched programs.
EVERY = {"local": 16, "sync": 5, "esync": 1}
LAUNCHED_EVERY = {"local": 5, "sync": 2, "esync": 1}


@dataclass(frozen=True)
class TimedRun:
    """A program on a cluster, in a mode."""

    program: str
    cluster: str
    mode: str
    seed: int

    @property
    def name(self) -> str:
        """Key of its figures."""
        return f"{self.program} {self.cluster} {self.mode} seed {self.seed}"

    def logs(self, folder: Path) -> Path:
        """Return the folder of its logs."""
        return folder / f"logs-{self.name.replace(' ', '-')}"


def describe(folder: Path, name: str, cluster: str) -> Path:
    """Write the description of a program on a cluster."""
    chosen, described = PROGRAMS[name], CLUSTERS[cluster]
    (folder / "nets.py").write_text(NETWORKS)
    content = {
        "scheduler": {"host": "hub"},
        "servers": [{"host": "hub"}],
        "state_server": {"host": "hub"},
        "workers": [
            {"host": f"h{rank}", "device": "cpu", "simulate": {"step_time": step}}
            for rank, step in enumerate(described["steps"])
        ],
        "network": described["network"],
        "simulate": {"model_bytes": "4MB", "evaluation_time": 0.001},
        "train": {
            "network": f"{folder / 'nets.py'}:{name}",
            "batch_size": chosen.batch_size,
            "optimizer": chosen.optimizer,
            "no_export": True,
            "data_dir": str(Path("data").resolve()),
        },
    }
    file = folder / f"{name}-{cluster}.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file


def esync(folder: Path, *words: str) -> None:
    """Run `esync` in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(program.ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "esync", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}: {done.stdout[-500:]}{done.stderr[-2000:]}")


def measure(folder: Path, run: TimedRun) -> dict[str, Any]:
    """Simulate a run with gradients until its target; where its logs are read, also predict the times of all modes."""
    file, chosen = describe(folder, run.program, run.cluster), PROGRAMS[run.program]
    out, logs = folder / "run.json", run.logs(folder)
    rate = "--local-lr" if run.mode == "esync" else "--learning-rate"
    esync(
        *(folder, "simulate", str(file), "-m", run.mode, f"{rate}={chosen.rate:.6g}", f"--seed={run.seed}"),
        *(f"--target-accuracy={chosen.target}", "--max-time=800", f"--eval-duration={EVERY[run.mode]}"),
        *("--test-images=4000", f"--json={out}", f"--log-dir={logs}", "--overwrite", "--quiet"),
    )
    result = json.loads(out.read_text())
    seconds = result["time_to"][f"{chosen.target:g}"]
    figure = {"seconds": seconds, "samples": result["samples"], "throughput": result["throughput"]}
    return {**figure, "predicted": predict(folder, file, logs, chosen.target)} if run.mode == LOGGED else figure


def launch(folder: Path, run: TimedRun) -> dict[str, Any]:
    """Launch a program of examples/; where its logs are read, also predict the times of all modes."""
    chosen, home = LAUNCHED[run.program], folder / run.name.replace(" ", "-")
    home.mkdir()
    (home / "data").symlink_to(Path("data").resolve())
    hub = {"host": "localhost"}
    workers = [{"host": "localhost", "device": "cpu", "step_time": step, "threads": 1} for step in PADDED[run.cluster]]
    content = {"scheduler": hub, "servers": [hub], "state_server": hub}
    file, alone, script = home / "cluster.yaml", home / "alone.yaml", home / Path(chosen.file).name
    file.write_text(yaml.safe_dump({**content, "workers": workers}))
    alone.write_text(yaml.safe_dump({**content, "workers": workers[:1]}))
    text = (program.ROOT / "examples" / chosen.file).read_text()
    script.write_text(text.replace(chosen.interval, f"every={LAUNCHED_EVERY[run.mode]}, target={chosen.target}"))
    logs, described = run.logs(folder), alone if run.mode == "local" else file
    words = ["launch", str(described), "-m", run.mode, f"--log-dir={logs}", "--quiet", "--", "python", str(script)]
    esync(home, *words, *chosen.words, *(["--base", str(folder / "base.params")] if "--base" in text else []))
    figures = find_runs([logs])[0].figures
    reached = zip(figures.times, figures.accuracies, strict=True)
    seconds = min(at for at, value in reached if figures.metric.reached(value, chosen.target))
    figure = {"seconds": seconds, "throughput": figures.throughput, "late": figures.overrun_share}
    return {**figure, "predicted": predict(home, file, logs, chosen.target)} if run.mode == LOGGED else figure


def predict(folder: Path, file: Path, logs: Path, target: float) -> dict[str, float]:
    """Return the times to the target of all modes by a plan from a run's logs."""
    out = folder / "plan.json"
    words = ["plan", str(file), "--from-logs", str(logs), "--modes", ",".join(MODES), "--jobs", "1"]
    esync(folder, *words, f"--target-accuracy={target}", "--json", str(out))
    rows = [row for members in json.loads(out.read_text())["classes"].values() for row in members]
    plain = [row for row in rows if row["flags"].keys() == {"mode"} and not row["per_host"]]
    return {
        row["flags"]["mode"]: row["time_to_target"]
        for row in plain
        if row["workers"] is None or len(row["workers"]) == 1
    }


def runs(programs: Collection[str], seeds: int) -> Iterator[TimedRun]:
    """Yield all runs."""
    for name, cluster, seed, mode in product(programs, CLUSTERS, range(1, seeds + 1), MODES):
        yield TimedRun(name, cluster, mode, seed)


def verdict(figures: Mapping[str, Any], programs: Collection[str], seeds: int) -> bool:
    """Print predicted by measured times, and whether the order of the modes is right; return whether all hold."""
    holds = True
    for name, cluster, seed in product(programs, CLUSTERS, range(1, seeds + 1)):
        measured = {mode: figures.get(TimedRun(name, cluster, mode, seed).name, {}).get("seconds") for mode in MODES}
        if None in measured.values():
            missing = [mode for mode, seconds in measured.items() if seconds is None]
            print(f"{name}, {cluster}, seed {seed}: no time of {', '.join(missing)}")
            continue
        predicted = figures[TimedRun(name, cluster, LOGGED, seed).name]["predicted"]
        ratios = {mode: predicted[mode] / measured[mode] for mode in MODES}
        order = all(
            measured[one] < measured[other]
            for one, other in product(MODES, MODES)
            if (1 + TIE) * predicted[one] < predicted[other]
        )
        within = all(WITHIN[0] <= ratio <= WITHIN[1] for ratio in ratios.values())
        holds &= within and order
        shown = ", ".join(
            f"{mode} {predicted[mode]:.1f} ÷ {measured[mode]:.1f} s = {ratios[mode]:.2f}" for mode in MODES
        )
        print(f"{name}, {cluster}, seed {seed}: {shown}: {program.verdict(within)}; order: {program.verdict(order)}")
    return holds


def carry_out(file: Path, seeds: int, launched: bool = False) -> bool:
    """Measure what has not been measured, and return whether every prediction holds."""
    figures, programs = read_figures(file), list(LAUNCHED if launched else PROGRAMS)
    missing = [run for run in runs(programs, seeds) if run.name not in figures]
    with (
        tempfile.TemporaryDirectory(prefix="plan-times-") as folder,
        ThreadPoolExecutor(JOBS if launched else 1) as executor,
    ):
        outcomes = executor.map(lambda run: (launch if launched else measure)(Path(folder), run), missing)
        for run, figure in zip(missing, outcomes, strict=True):
            figures[run.name] = figure
            write_figures(file, figures)
    return verdict(figures, programs, seeds)
