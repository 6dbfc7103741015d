"""Nodes of a Slurm job: which ones there are, as part of a description, and srun in the place of ssh."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import config
from ..runtime.errors import ExpectedError

#: Run by each task of the job, whose resources Slurm tells by these variables.
NODE_COMMAND = 'echo "@node $SLURM_NODEID $SLURMD_NODENAME $SLURM_CPUS_ON_NODE ${SLURM_GPUS_ON_NODE:-0}"'
NODE_LINE = re.compile(r"@node (\d+) (\S+) (\d+) (\d+)")


class SlurmError(ExpectedError):
    """Raised when this is not an allocation of Slurm, or srun does not say which nodes it has."""


def cluster(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the part of a description that a Slurm job decides on: all but training and options.

    There is a worker for each GPU of a node, or one on the CPU for each task where it has none.
    Scheduler, server and state server are on the first node. The other nodes are expected to see
    this process's folder and its Python.

    Args:
        environment: variables of this process.

    Raises:
        SlurmError: there is no job, or its nodes do not answer.
    """
    if not environment.get("SLURM_JOB_ID"):
        raise SlurmError(
            "--slurm: this is not inside an allocation of Slurm (SLURM_JOB_ID is not set); run it in a script that "
            "sbatch gets, or in the shell of salloc"
        )
    answers = NODE_LINE.findall(_node_lines())
    nodes = sorted({(int(number), name, int(cpus), int(gpus)) for number, name, cpus, gpus in answers})
    if not nodes:
        raise SlurmError(f"--slurm: no node of {environment.get('SLURM_JOB_NODELIST')} has said what it is")
    threads = environment.get("SLURM_CPUS_PER_TASK")
    hosts: dict[str, dict[str, Any]] = {}
    workers: list[dict[str, Any]] = []
    for number, name, cpus, gpus in nodes:
        if name != environment.get("SLURMD_NODENAME"):
            options = [f"--cpus-per-task={cpus}", *([f"--gres=gpu:{gpus}"] if gpus else [])]  # all that the job has
            hosts[name] = {"srun": options, "workdir": str(Path.cwd()), "python": sys.executable}
        tasks = sum(int(answer[0]) == number for answer in answers)
        cpu = {"host": name, "device": "cpu", **({"threads": int(threads)} if threads else {})}
        workers += [{"host": name, "device": f"gpu{gpu}"} for gpu in range(gpus)] or [cpu] * tasks
    first = {"host": nodes[0][1]}
    services = {"scheduler": first, "servers": [first], "state_server": first}
    return {**services, "workers": workers, "hosts": hosts, "spare_hosts": []}


def step(node: str, options: Sequence[str], *command: str) -> list[str]:
    """Return srun and a command, which it runs once on a node, beside whatever else runs there."""
    return ["srun", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", *options, *command]


def _node_lines() -> str:
    """Return what all tasks of the job say; what srun has to say goes to standard error."""
    command = ["srun", "--overlap", "sh", "-c", NODE_COMMAND]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            timeout=config.LAUNCH_CHECK,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError("--slurm: there is no srun in the PATH; load the module of Slurm's programs") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(
            f"--slurm: srun has started nothing on the job's nodes for {config.LAUNCH_CHECK:.0f} s; "
            "`srun --overlap hostname` in this allocation shows what it waits for"
        ) from None
    if done.returncode:
        raise SlurmError(f"--slurm: srun has ended with exit code {done.returncode}, and its reason stands above")
    return done.stdout
