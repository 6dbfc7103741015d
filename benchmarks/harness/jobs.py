"""Launched jobs: one that is watched from outside while it runs, and what workers have logged."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

MARK = "BENCHMARK_JOB"  # launch keeps variables named ESYNC_ from its processes
LIMIT = 1500.0  # seconds for one job


def devices(folder: Path) -> list[Path]:
    """Return the log folder of each worker of a job, by rank."""
    folders = {path.parent for path in (folder / "logs").rglob("run.json")}
    return sorted(folders, key=lambda device: int(json.loads((device / "run.json").read_text())["rank"]))


def entries(device: Path) -> dict[int, dict[str, Any]]:
    """Return the content of a worker's round files by round."""
    rounds = {int(path.stem.removeprefix("iter-")): json.loads(path.read_text()) for path in device.glob("iter-*.txt")}
    return dict(sorted(rounds.items()))


class Job:
    """A launcher and everything that it has started; nothing outlives the `with` statement.

    Its hosts, h0, h1 and so on with a worker each, all are this machine.

    Args:
        folder: folder of the job's files.
        steps: seconds of one iteration of each worker; None for one that is not slowed down.
        flags: of launch.
        train: flags of the workers.
    """

    def __init__(self, folder: Path, steps: Sequence[float | None], flags: Sequence[str] = (), **train: Any) -> None:
        self.mark = uuid.uuid4().hex
        hosts = [f"h{rank}" for rank in range(len(steps))]
        content = {
            "hosts": {host: {"address": "localhost"} for host in hosts},
            "scheduler": {"host": "h0"},
            "servers": [{"host": "h0"}],
            "state_server": {"host": "h0"},
            "workers": [
                {"host": host, "device": "cpu", "step_time": step, "threads": 1}
                for host, step in zip(hosts, steps, strict=True)
            ],
            "train": {"log_dir": str(folder / "logs"), **train},
        }
        (folder / "cluster.yaml").write_text(yaml.safe_dump(content))
        self.report = folder / "job.json"
        self.output = folder / "launch.txt"
        description = str(folder / "cluster.yaml")
        command = [sys.executable, "-m", "esync.launch", description, "--json", str(self.report), *flags]
        with open(self.output, "wb") as output:
            self.launch = subprocess.Popen(
                command,
                env={**os.environ, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *error: object) -> None:
        self.launch.terminate()
        try:
            self.launch.wait(15)
        except subprocess.TimeoutExpired:
            self.launch.kill()
            self.launch.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> dict[int, str]:
        """Return the living processes of the job but the launcher: ids, and modules with the ranks of workers."""
        processes = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == self.launch.pid:
                continue
            try:
                lines = (entry / "environ").read_text(errors="replace").split("\0")
                environment = dict(line.split("=", 1) for line in lines if "=" in line)
                if environment.get(MARK) != self.mark:
                    continue
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    continue
                words = (entry / "cmdline").read_text(errors="replace").split("\0")
            except OSError:
                continue
            name = words[2].removeprefix("esync.") if words[1:2] == ["-m"] else "other processes"
            if name == "worker":
                name += f" {environment['ESYNC_SLOT']}"
            processes[int(entry.name)] = name
        return processes

    def until(self, condition: Callable[[], Any], limit: float = 300.0, pause: float = 0.01) -> bool:
        """Wait for a condition while the job runs; return whether it has come true.

        The condition is checked after every pause.
        """
        end = time.monotonic() + limit
        while not condition():
            if self.launch.poll() is not None or time.monotonic() > end:
                return bool(condition())
            time.sleep(pause)
        return True

    def finish(self) -> dict[str, Any]:
        """Wait for the end of the job, `LIMIT` seconds at most; return the launcher's report.

        Its exit_code is None if the job goes on.
        """
        try:
            code: int | None = self.launch.wait(LIMIT)
        except subprocess.TimeoutExpired:
            code = None
        report = json.loads(self.report.read_text()) if self.report.exists() else {}
        if code != 0:
            print(self.output.read_text()[-3000:], file=sys.stderr)
        return {**report, "exit_code": code}
