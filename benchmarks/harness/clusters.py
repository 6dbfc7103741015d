"""Small clusters of real processes, which find each other by DMLC_* variables.

They run on this machine, or in network namespaces of it.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Commands of the scheduler and the servers.
SCHEDULER = ("-m", "esync.scheduler")
SERVER = ("-m", "esync.server", "-c", "1")
PATIENCE = 300.0  # seconds that workers may take
#: Port of a scheduler in a network namespace, where nothing else listens.
PORT = 9091


@dataclass(frozen=True)
class Machine:
    """Where a process runs.

    Attributes:
        address: at which the others reach it.
        words: in front of its command, which lead it into a network namespace.
    """

    address: str = "127.0.0.1"
    words: tuple[str, ...] = ()


NOTHING: Mapping[str, str] = {}
#: This machine itself.
HERE = Machine()


class Cluster:
    """Processes of one cluster, at a free port, with one thread each.

    None of them outlives the `with` statement.

    Args:
        workers: number of workers that will be started.
        servers: number of servers.
        scheduler: command of the scheduler, without the interpreter.
        server: command of each server.
        machine: where the scheduler and the servers run.
        port: of the scheduler, where they do not run here.
    """

    def __init__(
        self,
        workers: int,
        servers: int = 1,
        scheduler: Sequence[str] = SCHEDULER,
        server: Sequence[str] = SERVER,
        machine: Machine = HERE,
        port: int = PORT,
    ) -> None:
        self.scheduler: tuple[str, int] = machine.address, port
        if machine == HERE:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.scheduler = probe.getsockname()
        self._machine = machine
        self._environment = {
            **os.environ,
            "DMLC_PS_ROOT_URI": self.scheduler[0],
            "DMLC_PS_ROOT_PORT": str(self.scheduler[1]),
            "DMLC_NUM_WORKER": str(workers),
            "DMLC_NUM_SERVER": str(servers),
            "OMP_NUM_THREADS": "1",
        }
        self._servers, self._scheduler_command, self._server_command = servers, scheduler, server
        self._folder = tempfile.TemporaryDirectory(prefix="cluster-")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):  # it has ended before it was told to
                        stream.close()
        self._folder.cleanup()

    def start(self, *workers: Sequence[str]) -> None:
        """Start a scheduler, the servers, and a worker for each of these commands."""
        self.start_scheduler()
        self.start_servers()
        for command in workers:
            self.start_worker(*command)

    def start_scheduler(self) -> None:
        """Start the scheduler, as "scheduler"."""
        self._start("scheduler", "scheduler", self._scheduler_command, self._machine)

    def start_servers(self) -> None:
        """Start the servers, as "server-0" and so on."""
        for shard in range(self._servers):
            self._start(f"server-{shard}", "server", self._server_command, self._machine)

    def start_worker(self, *command: str, machine: Machine = HERE, **variables: str) -> None:
        """Start one more worker, as "worker-0" and so on; its output is for `results`.

        Args:
            command: without the interpreter.
            machine: where it runs.
            variables: of its environment.
        """
        self._start(f"worker-{len(self.workers)}", "worker", command, machine, variables)

    def ask(self, line: str) -> list[Any]:
        """Send all workers a line; return what each has printed as its answer, a line of JSON.

        Raises:
            RuntimeError: a worker has failed, or they take too long.
        """
        for process in self.workers:
            assert process.stdin is not None
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
        return self.answers()

    def answers(self) -> list[Any]:
        """Return one line of each worker, parsed as JSON; raises as `ask`."""
        found = []
        for place, process in enumerate(self.workers):
            name, stream = f"worker-{place}", process.stdout
            assert stream is not None
            if not select.select([stream], [], [], PATIENCE)[0]:
                raise RuntimeError(f"{name} does not answer:\n{self.log(name)[-3000:]}")
            said = stream.readline()
            if not said:
                raise RuntimeError(f"{name} has ended:\n{self.log(name)[-3000:]}")
            found.append(json.loads(said))
        return found

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        """The workers, in the order of their start."""
        return [process for name, process in self.processes.items() if name.startswith("worker")]

    def results(self) -> list[Any]:
        """Wait like `outputs`, and return each worker's last line, parsed as JSON.

        The result of a worker that has printed nothing is None.
        """
        return [json.loads(output.splitlines()[-1]) if output else None for output in self.outputs()]

    def outputs(self) -> list[str]:
        """Wait for the workers, and return what each has printed.

        Raises:
            RuntimeError: a worker has failed, or they take too long.
        """
        found = []
        for place, process in enumerate(self.workers):
            name = f"worker-{place}"
            try:
                output = process.communicate(timeout=PATIENCE)[0].decode()
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"{name} has not ended within {PATIENCE:.0f} s:\n{self.log(name)[-3000:]}") from None
            if process.returncode:
                raise RuntimeError(f"{name} has failed, exit code {process.returncode}:\n{self.log(name)[-3000:]}")
            found.append(output)
        return found

    def log(self, name: str) -> str:
        """Return the output of a process; of a worker, its standard error."""
        return (Path(self._folder.name) / name).read_text(errors="replace")

    def _start(
        self, name: str, role: str, command: Sequence[str], machine: Machine, variables: Mapping[str, str] = NOTHING
    ) -> None:
        with (Path(self._folder.name) / name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*machine.words, sys.executable, *command],
                env={**self._environment, "DMLC_ROLE": role, "DMLC_NODE_HOST": machine.address, **variables},
                stdin=subprocess.PIPE if role == "worker" else subprocess.DEVNULL,
                stdout=subprocess.PIPE if role == "worker" else log,
                stderr=log,
                start_new_session=True,
            )
