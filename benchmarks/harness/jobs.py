"""Launched jobs of emulated workers: run to their end, or watched from outside.

The processes of a watched job may be killed.
"""

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

MARK = "ESYNC_BENCHMARK_JOB"
STEPS = [0.2, 0.3, 0.4, 0.8]  # seconds of one iteration of each worker
LIMIT = 1500.0  # seconds for one job


def describe(
    steps: Sequence[float | None],
    *,
    hosts: Sequence[str] | None = None,
    servers: Sequence[str] = ("h0",),
    threads: int | None = 1,
    per_host: bool = False,
    **train: Any,
) -> dict[str, Any]:
    """Return the description of a cluster whose hosts all are this machine.

    Args:
        steps: seconds of one iteration of each worker; None for one that is not slowed down.
        hosts: emulated host of each worker; None gives each its own, named h0, h1 …
        servers: emulated host of each parameter server.
        threads: number of threads of each worker; None leaves it to `launch`.
        per_host: whether the workers of a host exchange as one.
        train: flags of the workers.
    """
    hosts = hosts or _one_each(steps)
    more = {} if threads is None else {"threads": threads}
    return {
        "hosts": {host: {"address": "localhost"} for host in hosts},
        "scheduler": {"host": "h0"},
        "servers": [{"host": host} for host in servers],
        "state_server": {"host": "h0"},
        **({"per_host": True} if per_host else {}),
        "workers": [
            {"host": host, "device": "cpu", "step_time": step, **more} for host, step in zip(hosts, steps, strict=True)
        ],
        "train": train,
    }


def _one_each(steps: Sequence[float | None]) -> list[str]:
    return [f"h{rank}" for rank in range(len(steps))]


def launch(description: dict[str, Any] | Path, folder: Path, *flags: str) -> None:
    """Run a job to its end; its logs are in `folder`/logs.

    Raises:
        RuntimeError: it has failed.
    """
    file = description if isinstance(description, Path) else folder / "cluster.yaml"
    if not isinstance(description, Path):
        file.write_text(yaml.safe_dump(description), encoding="utf-8")
    command = [sys.executable, "-m", "esync.launch", str(file), "--log-dir", str(folder / "logs"), *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
    if done.returncode:
        raise RuntimeError(f"launch has failed, exit code {done.returncode}:\n{done.stdout.decode()[-3000:]}")


def devices(folder: Path) -> list[Path]:
    """Return the log folder of each worker of a job, by rank."""
    found = {path.parent for path in (folder / "logs").rglob("run.json")}
    return sorted(found, key=lambda device: int(facts(device)["rank"]))


def facts(device: Path) -> dict[str, Any]:
    """Return the content of a worker's run.json."""
    found: dict[str, Any] = json.loads((device / "run.json").read_text())
    return found


def entries(device: Path) -> dict[int, dict[str, Any]]:
    """Return the content of a worker's round files by round."""
    found = {int(path.stem.removeprefix("iter-")): json.loads(path.read_text()) for path in device.glob("iter-*.txt")}
    return dict(sorted(found.items()))


class Job:
    """A launcher and everything that it has started; nothing outlives the `with` statement.

    Args:
        folder: folder of the job's files.
        flags: flags of the launcher.
        steps, hosts, servers, per_host, train: see `describe`.
    """

    def __init__(
        self,
        folder: Path,
        *flags: str,
        steps: Sequence[float | None] = STEPS,
        hosts: Sequence[str] | None = None,
        servers: Sequence[str] = ("h0",),
        per_host: bool = False,
        **train: Any,
    ) -> None:
        hosts = hosts or _one_each(steps)
        earlier = [list(hosts[:rank]).count(host) for rank, host in enumerate(hosts)]
        self._places = [f"{host}/cpu-{n}" if n else f"{host}/cpu" for host, n in zip(hosts, earlier, strict=True)]
        self.mark, self.folder = uuid.uuid4().hex, folder
        flags_of_workers = {"network": "lenet", "batch_size": 32, "log_dir": str(folder / "logs"), **train}
        content = describe(steps, hosts=hosts, servers=servers, per_host=per_host, **flags_of_workers)
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
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self, *words: str) -> dict[int, str]:
        """Return the living processes of the job with all these words in their command lines.

        The result maps process ids to command lines.
        """
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
        """Return the process id of a worker, or None."""
        return self._workers("ESYNC_SLOT").get(str(rank))

    def host_memory(self) -> set[str]:
        """Return the names of the memory that workers of the same host share, while they run."""
        return {each.partition(":")[0] for each in self._workers("ESYNC_HOST_GROUP")}

    def _workers(self, variable: str) -> dict[str, int]:
        """Return the workers that have a variable, by its value."""
        found = {}
        for number in sorted(self.processes("esync.worker"), reverse=True):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                for each in Path("/proc", str(number), "environ").read_text().split("\0"):
                    if each.startswith(f"{variable}="):
                        found[each.partition("=")[2]] = number
        return found

    def rounds(self, rank: int = 0) -> dict[int, float]:
        """Return the rounds that a worker has logged, with the times of their files (time.time)."""
        found = {}
        for path in self.folder.glob(f"logs/*/*/{self._places[rank]}/iter-*.txt"):
            found[int(path.stem.removeprefix("iter-"))] = path.stat().st_mtime
        return found

    def device(self, rank: int) -> Path:
        """Return a worker's log folder, which exists as soon as the worker has begun."""
        return next(self.folder.glob(f"logs/*/*/{self._places[rank]}"), self.folder / "logs")

    def entries(self, rank: int) -> dict[int, dict[str, Any]]:
        """Return the content of a worker's round files by round."""
        return entries(self.device(rank))

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

    def finish(self, quiet: bool = False, limit: float = LIMIT) -> dict[str, Any]:
        """Wait for the end of the job, `limit` seconds at most; return the launcher's report.

        Its exit_code is None if the job goes on.
        """
        try:
            code: int | None = self.launch.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        report = json.loads(self.report.read_text()) if self.report.exists() else {}
        if code != 0 and not quiet:
            print(self.output.read_text()[-3000:], file=sys.stderr)
        return {**report, "exit_code": code}
