"""Jobs for tests: descriptions, `python -m esync.launch` as a process, and who is left of a job."""

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

from tests.support.child import environment

#: Launch passes variables of this beginning on to other machines, so that their processes can be
#: found, too.
MARK = "ESYNC_TEST_JOB"


def description(steps: list[float], hosts: list[str] | None = None, **train: Any) -> dict[str, Any]:
    """Return a description of workers with these step times on this machine.

    They are on two hosts by turns, unless `hosts` says otherwise.
    """
    names = hosts or ["left", "right"]
    return {
        "hosts": {name: {"address": "localhost"} for name in names},
        "scheduler": {"host": names[0]},
        "servers": [{"host": names[0]}],
        "state_server": {"host": names[0]},
        "workers": [
            {"host": names[index % len(names)], "device": "cpu", "step_time": step, "threads": 1}
            for index, step in enumerate(steps)
        ],
        "train": {"network": "lenet", "batch_size": 8, **train},
    }


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


class Launch:
    """A launcher that runs; `output` is what it has printed, standard error included.

    With `output`, standard output goes to that file, and `errors` is what has gone to standard
    error. `inside` are words in front of its command, which lead it into another network namespace.
    `command` is the launcher's own, without the file, which is made where a description's content
    is given.
    """

    def __init__(
        self,
        folder: Path,
        file: Path | dict[str, Any],
        *flags: str,
        output: Path | None = None,
        inside: Sequence[str] = (),
        command: Sequence[str] = ("-m", "esync.launch"),
        **variables: str,
    ) -> None:
        self.mark = uuid.uuid4().hex
        if isinstance(file, dict):
            file = write(folder / f"{self.mark}.yaml", file)
        self.log = folder / f"launch-{self.mark}.txt"
        with open(self.log, "wb") as log, open(output or self.log, "ab") as out:
            self.process = subprocess.Popen(
                [*inside, sys.executable, *command, str(file), *flags],
                cwd=folder,
                env=environment(**variables, **{MARK: self.mark}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log if output else subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def errors(self) -> str:
        return self.output

    def wait(self, limit: float = 60) -> int:
        """The exit code."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"launch is still running after {limit} s:\n{self.output}") from None

    def until(self, condition: Callable[[], bool], limit: float = 45) -> None:
        """Wait for something to come true while the launcher runs."""
        end = time.monotonic() + limit
        while not condition():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < end, self.output
            time.sleep(0.05)

    def processes(self) -> dict[int, str]:
        """Return the job's living processes, id → command line, without the launcher."""
        commands = {}
        marked = f"{MARK}={self.mark}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == self.process.pid:
                continue
            try:
                if marked in (entry / "environ").read_bytes().split(b"\0"):
                    commands[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has ended meanwhile, or is another user's
        return commands

    def workers(self, program: str = "-m esync.worker") -> dict[int, dict[str, str]]:
        """Return the ESYNC_* variables of the workers that run, which a program is found by, by their ids."""
        environments = {}
        for number, command in sorted(self.processes().items()):
            if program in command and "process_shim" not in command:
                pairs = Path(f"/proc/{number}/environ").read_text().split("\0")
                environments[number] = dict(pair.split("=", 1) for pair in pairs if pair.startswith("ESYNC_"))
        return environments

    def worker(self, rank: int, program: str = "-m esync.worker") -> int:
        """Return the id of the worker of this rank; a fork of it has a larger one."""
        return next(
            number for number, variables in self.workers(program).items() if variables["ESYNC_SLOT"] == str(rank)
        )

    def gone_within(self, limit: float) -> dict[int, str]:
        """Wait until nothing of the job is left; what is left after that time."""
        end = time.monotonic() + limit
        while (remaining := self.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        return remaining

    def finish(self, code: int = 0, limit: float = 180) -> None:
        """Wait for its end, which must have this exit code, and until nothing of the job is left."""
        assert self.wait(limit) == code, self.output
        assert self.gone_within(10) == {}

    def sweep(self) -> None:
        """End whatever is left, however the test has gone."""
        self.process.kill()
        self.process.wait()
        for number in self.processes():
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                continue


#: Starts launchers; see job_fixtures.
Start = Callable[..., Launch]
