"""Small clusters of real processes of this machine, which find each other by DMLC_* variables."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Commands of the scheduler and the server.
SCHEDULER = ("-m", "esync.scheduler")
SERVER = ("-m", "esync.server", "-c", "1")
PATIENCE = 300.0  # seconds that workers may take
#: Variables with which MPI's processes use no shared memory, as between machines.
APART = {"UCX_TLS": "tcp", "MPIR_CVAR_NOLOCAL": "1"}


class Cluster:
    """Processes of one cluster, at a free port, with one thread each.

    None of them outlives the `with` statement.

    Args:
        workers: number of workers that will be started.
        scheduler: command of the scheduler, without the interpreter.
        server: command of the server.
    """

    def __init__(self, workers: int, scheduler: Sequence[str] = SCHEDULER, server: Sequence[str] = SERVER) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._environment = {
            **os.environ,
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(port),
            "DMLC_NODE_HOST": "127.0.0.1",
            "DMLC_NUM_WORKER": str(workers),
            "DMLC_NUM_SERVER": "1",
            "OMP_NUM_THREADS": "1",
        }
        self._scheduler, self._server = scheduler, server
        self._folder = tempfile.TemporaryDirectory(prefix="cluster-")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._folder.cleanup()

    def start(self, *workers: Sequence[str]) -> None:
        """Start a scheduler, a server, and a worker for each of these commands."""
        self._start("scheduler", "scheduler", self._scheduler)
        self._start("server-0", "server", self._server)
        for command in workers:
            self.start_worker(*command)

    def start_worker(self, *command: str) -> None:
        """Start one more worker, as "worker-0" and so on; its output is for `results`."""
        self._start(f"worker-{len(self.workers)}", "worker", command)

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
        outputs = []
        for place, process in enumerate(self.workers):
            name = f"worker-{place}"
            try:
                output = process.communicate(timeout=PATIENCE)[0].decode()
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"{name} has not ended within {PATIENCE:.0f} s:\n{self.log(name)[-3000:]}") from None
            if process.returncode:
                raise RuntimeError(f"{name} has failed, exit code {process.returncode}:\n{self.log(name)[-3000:]}")
            outputs.append(output)
        return outputs

    def log(self, name: str) -> str:
        """Return the output of a process; of a worker, its standard error."""
        return (Path(self._folder.name) / name).read_text(errors="replace")

    def _start(self, name: str, role: str, command: Sequence[str]) -> None:
        with (Path(self._folder.name) / name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *command],
                env={**self._environment, "DMLC_ROLE": role},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if role == "worker" else log,
                stderr=log,
                start_new_session=True,
            )
