"""A launched job of emulated workers that a benchmark watches from outside and whose processes it may kill."""

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

MARK = "ESYNC_BENCHMARK_JOB"
STEPS = [0.2, 0.3, 0.4, 0.8]  # seconds of one iteration of each worker
LIMIT = 1500.0  # seconds for one job


class Job:
    """A launcher and what it has started; nothing outlives the with statement.

    Args:
        folder: of the job's files.
        flags: of the launcher.
        steps: seconds of one iteration of each worker; None: as fast as it can.
        hosts: emulated host of each worker; None: each has its own, named h0, h1 …
        servers: emulated host of each parameter server.
        train: flags of the workers.
    """

    def __init__(
        self,
        folder: Path,
        *flags: str,
        steps: Sequence[float | None] = STEPS,
        hosts: Sequence[str] | None = None,
        servers: Sequence[str] = ("h0",),
        **train: Any,
    ) -> None:
        self.mark, self.folder = uuid.uuid4().hex, folder
        hosts = hosts or [f"h{rank}" for rank in range(len(steps))]
        content = {
            "hosts": {host: {"address": "localhost"} for host in hosts},
            "scheduler": {"host": "h0"},
            "servers": [{"host": host} for host in servers],
            "state_server": {"host": "h0"},
            "workers": [
                {"host": host, "device": "cpu", "step_time": step, "threads": 1}
                for host, step in zip(hosts, steps, strict=True)
            ],
            "train": {"network": "lenet", "batch_size": 32, "log_dir": str(folder / "logs"), **train},
        }
        (folder / "cluster.yaml").write_text(yaml.safe_dump(content))
        self.report = folder / "job.json"
        self.output = folder / "launch.txt"
        command = [sys.executable, "-m", "esync.launch", str(folder / "cluster.yaml"), "--json", str(self.report)]
        with open(self.output, "wb") as output:
            self.launch = subprocess.Popen(
                [*command, *flags],
                env={**os.environ, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *error: object) -> None:
        self.launch.send_signal(signal.SIGCONT)
        self.launch.terminate()
        try:
            self.launch.wait(15)
        except subprocess.TimeoutExpired:
            self.launch.kill()
            self.launch.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    def processes(self, *words: str) -> dict[int, str]:
        """Processes of the job that are alive and whose command line has all these words: id → command line."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == self.launch.pid:
                continue
            try:
                if f"{MARK}={self.mark}".encode() not in (entry / "environ").read_bytes():
                    continue
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    continue
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if all(word in line for word in words):
                found[int(entry.name)] = line
        return found

    def worker(self, rank: int) -> int | None:
        """The process of a worker."""
        return min(self.processes("esync.worker", f"/h{rank} "), default=None)

    def rounds(self, rank: int = 0) -> dict[int, float]:
        """Rounds that a worker has logged → when (time.time)."""
        found = {}
        for path in self.folder.glob(f"logs/*/*/h{rank}/cpu/iter-*.txt"):
            found[int(path.stem.removeprefix("iter-"))] = path.stat().st_mtime
        return found

    def entries(self, rank: int) -> dict[int, dict[str, Any]]:
        """What a worker has logged."""
        paths = self.folder.glob(f"logs/*/*/h{rank}/cpu/iter-*.txt")
        return {int(path.stem.removeprefix("iter-")): json.loads(path.read_text()) for path in paths}

    def until(self, condition: Callable[[], Any], limit: float = 300.0, pause: float = 0.01) -> bool:
        """Wait while the job runs, looking after every pause; whether the condition has come true."""
        end = time.monotonic() + limit
        while not condition():
            if self.launch.poll() is not None or time.monotonic() > end:
                return bool(condition())
            time.sleep(pause)
        return True

    def finish(self, quiet: bool = False, limit: float = LIMIT) -> dict[str, Any]:
        """Wait for the end, `limit` seconds at most; the launcher's report, with exit_code None where it goes on."""
        try:
            code: int | None = self.launch.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        report = json.loads(self.report.read_text()) if self.report.exists() else {}
        if code != 0 and not quiet:
            print(self.output.read_text()[-3000:], file=sys.stderr)
        return {**report, "exit_code": code}
