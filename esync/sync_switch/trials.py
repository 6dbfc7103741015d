"""Trial runs of a search, on real processes or in the simulator.

Results are stored in files, so that an interrupted search does not repeat trials.
"""

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from esync.reports.sync_switch.runs import find_runs

from ..runtime.errors import ExpectedError
from ..runtime.files import write_atomically
from ..training.loop import DIVERGED
from .search import Measured, TrialOutcome

#: Where trials run → the program that runs one.
ENGINES = {"simulate": "esync.simulate", "launch": "esync.launch"}


class TrialError(ExpectedError):
    """Raised when a trial has failed for another reason than divergence."""


@dataclass
class Trials:
    """Runs of one job with different shares of BSP.

    Args:
        folder: folder of results and logs.
        file: description of the cluster and the training.
        flags: flags of the worker that override the description's.
        repeats: runs of each share, with seeds from `seed` on.
        engine: a key of ENGINES.
        seed: seed of the first run.
        notify: called with a message before each run.

    Attributes:
        core_seconds: processor time of all trials in the folder, in seconds.
    """

    folder: Path
    file: Path
    flags: Sequence[str] = ()
    repeats: int = 5
    engine: str = "simulate"
    seed: int = 0
    notify: Callable[[str], None] = print
    core_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._agree()

    def measure(self, share: float) -> Measured:
        """Return all runs of one share.

        Raises:
            TrialError: a run has failed.
            OSError: a result cannot be written.
        """
        return Measured(share, tuple(self._outcome(share, self.seed + number) for number in range(self.repeats)))

    def _agree(self) -> None:
        """Check that the folder contains trials of this job only."""
        terms = {"engine": self.engine, "flags": list(self.flags), "description": self.file.read_text(encoding="utf-8")}
        path = self.folder / "job.json"
        if path.exists():
            try:
                saved = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                raise TrialError(f"{path} cannot be read; delete the folder, or choose another with --out") from None
            different = [name for name in terms if saved.get(name) != terms[name]]
            if different:
                raise TrialError(
                    f"{self.folder} holds trials of another job ({' and '.join(different)} differ); choose another "
                    "folder with --out, or delete it"
                )
        write_atomically(path, json.dumps(terms, indent=2).encode())

    def _outcome(self, share: float, seed: int) -> TrialOutcome:
        path = self.folder / f"share-{share:g}-seed-{seed}.json"
        result = _cached_result(path)
        if result is None:
            self.notify(f"BSP {100 * share:g} %, seed {seed} …")
            result = self._run(share, seed)
            write_atomically(path, json.dumps(result).encode())
        self.core_seconds += float(result["core_seconds"])
        return TrialOutcome(float(result["accuracy"]), float(result["seconds"]), bool(result["diverged"]))

    def _run(self, share: float, seed: int) -> dict[str, Any]:
        logs = self.folder / "logs" / f"share-{share:g}-seed-{seed}"
        shutil.rmtree(logs, ignore_errors=True)  # of an interrupted trial
        command = [sys.executable, "-m", ENGINES[self.engine], str(self.file), *self.flags, "--mode", "sync-switch"]
        command += ["--bsp-share", f"{share:g}", "--seed", str(seed), "--log-dir", str(logs), "--quiet"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        try:
            output, _ = process.communicate()
        except BaseException:  # on Ctrl-C, end the trial's processes, too
            process.terminate()
            process.wait()
            raise
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cores = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        runs = find_runs(logs).runs if logs.is_dir() else []
        diverged = DIVERGED in output
        if len(runs) == 1 and (process.returncode == 0 or diverged):
            run = runs[0]
            accuracy = 0.0 if diverged else run.accuracy
            return {"accuracy": accuracy, "seconds": run.time, "diverged": diverged, "core_seconds": cores}
        if diverged:  # before anything was logged
            return {"accuracy": 0.0, "seconds": 0.0, "diverged": True, "core_seconds": cores}
        reason = output.strip().splitlines()[-1] if output.strip() else f"exit code {process.returncode}"
        if process.returncode == 0:
            reason = f"{len(runs)} runs with acc.csv and loss.csv in {logs} instead of one"
        raise TrialError(f"the trial with BSP share {share:g} and seed {seed} failed: {reason}")


def _cached_result(path: Path) -> dict[str, Any] | None:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    names = {"accuracy", "seconds", "diverged", "core_seconds"}
    return result if isinstance(result, dict) and names <= result.keys() else None
