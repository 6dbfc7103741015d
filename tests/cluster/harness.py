"""Real clusters on loopback for tests.

Scheduler, servers and workers are processes of their own, all of which are reaped.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from esync.runtime.environment import SUPERVISED_VARIABLE

from ..support.forked import ForkedProgram
from ..support.ports import BLOCK_NUMBER, free_port

SCRIPTS = Path(__file__).parent
Process = ForkedProgram | subprocess.Popen[bytes]
TIME_LIMIT = 150  # seconds for one cluster, from start to end, on a slow and busy machine


class Cluster:
    """Use it in a with statement: nothing it has started outlives it.

    Args:
        folder: where the output of every process goes, as NAME.log.
        workers: number of worker slots.
        servers: number of parameter servers.
        seconds: for the whole cluster, from start to end.
        server_flags: of the servers.
        replaced: whether the test promises, as a launcher does, to replace workers that die.
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        servers: int = 1,
        seconds: float = TIME_LIMIT,
        replaced: bool = False,
        server_flags: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(free_port()),
            "DMLC_NODE_HOST": "127.0.0.1",
            "DMLC_NUM_WORKER": str(workers),
            "DMLC_NUM_SERVER": str(servers),
            "OMP_NUM_THREADS": "1",
        }
        self.environment.pop("DMLC_ROLE", None)
        if replaced:
            self.environment[SUPERVISED_VARIABLE] = "1"
        self.processes: dict[str, Process] = {}
        self._servers, self._server_flags = servers, server_flags
        self._first_port = free_port()
        self._seconds = seconds
        self.deadline = time.monotonic() + seconds

    def __enter__(self) -> "Cluster":
        self.start("scheduler", ["-m", "esync.scheduler"])
        for number in range(self._servers):
            self.start(f"server-{number}", ["-m", "esync.server", "-c", "1", *self._server_flags])
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        inside: Sequence[str] = (),
        interpreter: bool = False,
        **environment: str,
    ) -> Process:
        """Start `python ARGUMENTS`, with its output in NAME.log.

        Args:
            name: of the process.
            arguments: of the interpreter.
            inside: a command that starts it.
            interpreter: whether an interpreter of its own is started, which shows how a program
                ends; otherwise a process is forked that has MXNet already.
            environment: further variables.
        """
        log, variables = self.folder / f"{name}.log", {**self.environment, **environment}
        if not (inside or interpreter):
            self.processes[name] = ForkedProgram(arguments, variables, log)
            return self.processes[name]
        with open(log, "wb") as output:
            self.processes[name] = subprocess.Popen(
                [*inside, sys.executable, *arguments],
                env=variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.processes[name]

    def start_worker(
        self, rank: int, arguments: Sequence[str], interpreter: bool = False, **environment: str
    ) -> Process:
        """Start a worker that gets this rank: ps-lite orders workers of one host by their port."""
        port = 20000 + 1000 * rank + 200 * BLOCK_NUMBER + self._first_port % 200
        return self.start(f"worker-{rank}", arguments, (), interpreter, PORT=str(port), **environment)

    def start_state_server(self, port: int = 0) -> int:
        """Start a state server, or the same one again; its port."""
        place = ["--port", str(port), "--state-dir", str(self.folder / "state")]
        self.start("state-server", ["-m", "esync.state_server", *place])
        while not (match := re.search(r"listening on http://[\d.]+:(\d+)", self.output("state-server"))):
            assert self.processes["state-server"].poll() is None, self.output("state-server")
            time.sleep(0.02)
        return int(match[1])

    def output(self, name: str) -> str:
        """What a process has printed so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait(self, name: str) -> int:
        """Wait for a process to end, and return its exit code.

        The test fails when the cluster's time is over.
        """
        try:
            return self.processes[name].wait(max(0.1, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            outputs = "\n".join(f"--- {title}\n{self.output(title)[-2000:]}" for title in self.processes)
            raise AssertionError(f"{name} is still running after {self._seconds} s\n{outputs}") from None

    def finish(self, expected: int = 0) -> None:
        """Wait for all workers, then for all other processes.

        Every worker must end with the expected exit code.
        """
        for name in sorted(self.processes, key=lambda name: not name.startswith("worker")):
            if name == "state-server":
                continue  # serves one job after the other
            code = self.wait(name)
            if name.startswith("worker"):
                assert code == expected, f"{name} ended with {code}:\n{self.output(name)}"
        assert self.processes["scheduler"].returncode == 0, self.output("scheduler")


def outputs_of(
    folder: Path,
    commands: Sequence[Sequence[str]],
    expected: int = 0,
    servers: int = 1,
    environments: Sequence[Mapping[str, str]] = (),
    **options: bool,
) -> list[str]:
    """Run a cluster with a worker for each of these command lines to its end.

    Args:
        folder: see `Cluster`; made if it does not exist.
        commands: of the workers, by rank.
        expected: exit code of the workers.
        servers: number of parameter servers.
        environments: further variables of each worker.
        options: `replaced` of `Cluster`, `interpreter` of `Cluster.start`.

    Returns:
        What the workers have printed.
    """
    folder.mkdir(exist_ok=True)
    interpreter = options.pop("interpreter", False)
    with Cluster(folder, len(commands), servers, **options) as cluster:
        for rank, command in enumerate(commands):
            cluster.start_worker(rank, command, interpreter, **(environments[rank] if environments else {}))
        if expected:
            for rank in range(len(commands)):
                assert cluster.wait(f"worker-{rank}") == expected, cluster.output(f"worker-{rank}")
        else:
            cluster.finish()
        return [cluster.output(f"worker-{rank}") for rank in range(len(commands))]
