"""A cluster whose hosts are network namespaces of this machine, which launch reaches by ssh."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from namespaces import DESK, Machines

from . import program
from .clusters import APART

#: The host of the scheduler, the parameter server and the state server.
HUB = "hub"
LIMIT = 900.0  # seconds for one command


class MachineCluster:
    """A cluster while its machines are up.

    Args:
        folder: of all its files.
        machines: the hosts, `HUB` among them.
        workers: host → seconds of an iteration of its worker.
        megabits: of every host's port; None: nothing limits it.
        train: flags of the workers.
    """

    def __init__(
        self,
        folder: Path,
        machines: Machines,
        workers: Mapping[str, float],
        megabits: int | None,
        train: Mapping[str, Any],
    ) -> None:
        self.folder, self._machines = folder, machines
        for host in (HUB, *workers):
            if megabits is not None:
                machines.limit(host, megabits)
        self._content = {
            "hosts": {name: machines.entry(name, env=APART) for name in (HUB, *workers)},
            "scheduler": {"host": HUB},
            "servers": [{"host": HUB}],
            "state_server": {"host": HUB},
            "workers": [
                {"host": host, "device": "cpu", "step_time": step, "threads": 1} for host, step in workers.items()
            ],
            "train": dict(train),
        }

    def describe(self, name: str, ranks: Sequence[int] | None = None, **keys: Any) -> Path:
        """Write a description of the cluster, or of these workers of it, with further keys; return its file."""
        content = {**self._content, **keys}
        if ranks is not None:
            content["workers"] = [content["workers"][rank] for rank in ranks]
        file = self.folder / name
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return file

    def esync(self, *words: str) -> None:
        """Run a command of `esync` on the desk.

        Raises:
            RuntimeError: it has failed.
        """
        done = subprocess.run(
            [*self._machines.inside(DESK), sys.executable, "-m", "esync", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(program.ROOT), **APART},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}:\n{done.stdout.decode()[-3000:]}")
