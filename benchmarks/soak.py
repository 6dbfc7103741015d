"""What grows while a job runs on and on? Many rounds of a tiny model, watched from outside.

    python benchmarks/soak.py                                 # 200,000 rounds per mode: hours
    python benchmarks/soak.py --modes esync --rounds 20000    # a part of it
    python benchmarks/soak.py --minutes 30                    # half an hour per mode

A launcher, a scheduler, a parameter server, a state server (mode esync) and two workers train a
network of one hidden layer with batches of one image. They write a checkpoint every 1,000 rounds and
evaluate now and then; every 5,000 rounds the second worker is killed, and launch replaces it.
A hundred times through the run, the memory of every process (resident and proportional set size),
its open files and its threads, and the sizes of the log folder, the checkpoints, the state server's
database and its journal are read. Each is judged from the first tenth of the rounds on: flat, or
growing by so much per 1,000 rounds (least squares). Figures of modes that have run before stay in
the file.
"""

import contextlib
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from harness import program
from harness.figures import read_figures, write_figures
from harness.jobs import Job

MODES = ("esync", "async", "sync")
TRAIN = {"network": "mlp", "batch_size": 1, "local_lr": 1e-4, "learning_rate": 1e-4, "test_images": 500}
SAMPLES = 100  # per mode
PAUSE = 0.25  # seconds between two looks at how far the job is
EVALUATIONS = 100  # per mode
CHECKPOINT_EVERY = 1000  # rounds
REPLACE_EVERY = 5000  # rounds after which the worker REPLACED is killed
REPLACED = 1  # its rank
#: Unit of a series → how far it may move in all, after the first tenth of the rounds, and still be
#: called flat …
TOLERANCE = {"KiB": 512.0, "open files": 1.0, "threads": 1.0, "files": 3.0}
#: … or so much for each of the rounds: less than the 16 bytes of one message that somebody keeps.
TOLERANCE_PER_ROUND = {"KiB": 8 / 1024}
#: First words of a series' name → why it grows.
REASONS = {
    "worker": "ps-lite notes every push and pull of a worker in 8 bytes that it never frees (Customer::tracker_)",
    "server: open files": "ps-lite keeps its socket to a worker that was replaced",
    "state server: ": "what the history's database takes, SQLite's page cache first; it slows down",
    "round logs": "a file per round and worker: what a run leaves",
    "output": "a line per round and worker",
    "state server's database": "a row per second and worker, and one for each event: what a run leaves",
    "state server's journal": "begins anew from the job's state at 16 MB (JOURNAL_BYTES)",
}


@dataclass
class Series:
    """A figure in the course of a run.

    Attributes:
        unit: KiB, open files, threads, or files.
        rounds: rounds at which it was read.
        values: its values at these rounds.
    """

    unit: str
    rounds: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def judged(self, name: str, last: int) -> dict[str, Any]:
        """Judge what came after the first tenth of `last` rounds, with a value for each tenth."""
        rounds, values = np.array(self.rounds), np.array(self.values)
        late = rounds >= last / 10
        if late.sum() < 3:
            return {"unit": self.unit, "values": self.values, "verdict": "too short to tell"}
        slope, _ = np.polyfit(rounds[late], values[late], 1)
        span = float(rounds[late][-1] - rounds[late][0])
        moved, allowed = slope * span, TOLERANCE_PER_ROUND.get(self.unit, 0.0) * span
        flat = abs(moved) <= max(TOLERANCE[self.unit], allowed)
        tenths = [values[np.abs(rounds - last * tenth / 10).argmin()] for tenth in range(1, 11)]
        verdict = "flat" if flat else "grows" if slope > 0 else "shrinks"
        reason = next((reason for words, reason in REASONS.items() if name.startswith(words)), "not known")
        return {
            "unit": self.unit,
            "at_each_tenth": [round(float(value)) for value in tenths],
            "per_1000_rounds": round(float(slope) * 1000, 3),
            "verdict": f"grows: {reason}" if verdict == "grows" else verdict,
        }


class Soak:
    """The figures that are read from one running job.

    Args:
        job: the job.
        folder: its files.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self._job, self._folder = job, folder
        self.series: dict[str, Series] = {}
        self.round = 0  # of rank 0, as far as it is logged
        self.kills = 0

    def look(self) -> int:
        """Return the round that rank 0 has reached, by its round files."""
        while any((folder / f"iter-{self.round + 1}.txt").exists() for folder in self._logs()):
            self.round += 1
        return self.round

    def kill_if_due(self) -> None:
        """Kill the worker REPLACED once for each REPLACE_EVERY rounds."""
        if self.round < REPLACE_EVERY * (self.kills + 1):
            return
        for pid in _by_name(self._job.processes()).get(f"worker {REPLACED}", []):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.kills += 1

    def read(self) -> None:
        """Read everything once, unless the job is ending."""
        names = _by_name({**self._job.processes(), self._job.launch.pid: "launch"})
        if not names.keys() >= {"worker 0", "worker 1"}:
            return
        self.look()
        for name, pids in sorted(names.items()):
            try:
                figures = [_of_process(pid) for pid in pids]
            except (OSError, ValueError):  # it has just ended
                continue
            for kind, unit in (
                ("RSS", "KiB"),
                ("anonymous", "KiB"),
                ("open files", "open files"),
                ("threads", "threads"),
            ):
                self._add(f"{name}: {kind}", unit, sum(figure[kind] for figure in figures))
        for name, paths in self._files().items():
            stats = [stat for path in paths for stat in _stats(path)]
            self._add(f"{name}: size", "KiB", sum(stat.st_blocks for stat in stats) / 2)
            if name in ("round logs", "checkpoints"):
                self._add(f"{name}: files", "files", len(stats))

    def _files(self) -> dict[str, list[Path]]:
        logs = self._folder / "logs"
        return {
            "round logs": self._logs(0) + self._logs(1),
            "output of the processes": list(logs.glob("*/*/processes/*.log")),
            "checkpoints": [self._folder / "checkpoints"],
            "state server's database": list(logs.glob("*/*/processes/.state-server/history.sqlite3*")),
            "state server's journal": list(logs.glob("*/*/processes/.state-server/jobs")),
        }

    def _logs(self, rank: int = 0) -> list[Path]:
        return list(self._folder.glob(f"logs/*/*/h{rank}/cpu"))

    def _add(self, name: str, unit: str, value: float) -> None:
        series = self.series.setdefault(name, Series(unit))
        series.rounds.append(self.round)
        series.values.append(value)


def _by_name(processes: dict[int, str]) -> dict[str, list[int]]:
    """Return the processes by name; launch's shims are counted together."""
    names: dict[str, list[int]] = {}
    for pid, name in processes.items():
        names.setdefault(name.replace("launch.process_shim", "shims of launch").replace("_", " "), []).append(pid)
    return names


def _of_process(pid: int) -> dict[str, float]:
    """Return a process's memory in KiB, its open files and its threads.

    Raises:
        OSError: it has ended.
    """
    process = Path("/proc") / str(pid)
    memory = dict(re.findall(r"^(Rss|Anonymous): +(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE))
    return {
        "RSS": float(memory["Rss"]),
        "anonymous": float(memory["Anonymous"]),
        "open files": float(len(os.listdir(process / "fd"))),
        "threads": float(len(os.listdir(process / "task"))),
    }


def _stats(path: Path) -> Iterator[os.stat_result]:
    """Yield the status of all files below a folder, or of a file.

    Files that vanish meanwhile are left out.
    """
    try:
        entries = list(os.scandir(path)) if path.is_dir() else []
        if not entries and path.is_file():
            yield path.stat()
    except FileNotFoundError:
        return
    for entry in entries:
        try:
            if entry.is_dir():
                yield from _stats(Path(entry.path))
            else:
                yield entry.stat()
        except FileNotFoundError:
            continue


def soak(mode: str, rounds: int, minutes: float | None) -> Iterator[dict[str, Any]]:
    """Run one mode; yield the figures after each reading, and at the end."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        train: dict[str, Any] = {**TRAIN, "mode": mode, "rounds": rounds}
        train |= {"eval_duration": max(1, rounds // EVALUATIONS), "checkpoint_every": CHECKPOINT_EVERY}
        train |= {"checkpoint_dir": str(folder / "checkpoints")}
        if minutes is not None:
            train["max_time"] = minutes * 60
        with Job(folder, [None, None], (f"--max-restarts={rounds // REPLACE_EVERY + 1}",), **train) as job:
            soak = Soak(job, folder)
            job.until(lambda: soak.look() > 0)
            began = time.monotonic()
            due = 0
            while job.launch.poll() is None and soak.round < rounds:
                soak.kill_if_due()
                if soak.look() >= due:
                    soak.read()
                    due = soak.round + max(1, rounds // SAMPLES)
                    yield _figures(soak, time.monotonic() - began)
                time.sleep(PAUSE)
            seconds = time.monotonic() - began
            report = job.finish()
            soak.look()
            replaced = len(report.get("replacements", []))
            yield {**_figures(soak, seconds), "replacements": replaced, "exit_code": report["exit_code"]}


def _figures(soak: Soak, seconds: float) -> dict[str, Any]:
    return {
        "rounds": soak.round,
        "seconds": round(seconds, 1),
        "rounds_per_second": round(soak.round / seconds, 1) if seconds else None,
        "exit_code": None,  # while it runs
        "series": {name: series.judged(name, soak.round) for name, series in soak.series.items()},
    }


def show(mode: str, figures: dict[str, Any]) -> None:
    """Print a table."""
    print(f"\n{mode}: {figures['rounds']} rounds in {figures['seconds']} s, exit code {figures['exit_code']}")
    print(f"  {'':44}{'first tenth':>12}{'end':>12}  {'per 1,000 rounds':>16}")
    for name, series in figures["series"].items():
        tenths = series.get("at_each_tenth")
        if tenths is None:
            print(f"  {name:44}  {series['verdict']}")
        else:
            ends = f"{tenths[0]:>12}{tenths[-1]:>12}"
            print(f"  {name:44}{ends}  {series['per_1000_rounds']:16.2f} {series['unit']}: {series['verdict']}")


def main() -> None:
    """Run the chosen modes."""
    parser = program.parser(__doc__, json=program.RESULTS / "soak.json")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--rounds", type=int, default=200_000)
    parser.add_argument("--minutes", type=float, help="end a mode after so many, however far it is")
    options = parser.parse_args()
    results = read_figures(options.json)
    for mode in options.modes:
        for figures in soak(mode, options.rounds, options.minutes):
            results[mode] = figures
            write_figures(options.json, results)
        show(mode, results[mode])
        if results[mode]["exit_code"]:
            sys.exit(1)


if __name__ == "__main__":
    program.run(main)
