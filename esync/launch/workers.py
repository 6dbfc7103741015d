"""The workers of a job: their commands, and the environment of each."""

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..arguments.environment import environment_of
from ..runtime.progress import VARIABLE as PROGRESS_VARIABLE
from ..runtime.worker_environment import HostGroupName, WorkerEnvironment
from ..training.run_folder import same_below
from . import flags, user_program
from .commands import environment, python
from .description import WorkerEntry
from .resources import JobResources
from .spec import ProcessSpec
from .user_program import UserProgram


@dataclass(frozen=True)
class WorkerJob:
    """What all workers of a job have in common.

    Attributes:
        cluster: variables by which a worker finds the other processes; empty in mode local.
        common: the environment on all devices; its folders are the mode's.
        program: the user's program; None for the built-in worker.
        settings: flags of the job. The built-in worker gets those on its command line that are not
            in its environment.
        groups: number of a worker → the workers of its host with which it exchanges as one.
    """

    cluster: Mapping[str, str]
    common: WorkerEnvironment
    program: UserProgram | None
    settings: flags.Settings
    groups: Mapping[int, HostGroupName] = field(default_factory=dict)

    def command(self, interpreter: str) -> tuple[str, ...]:
        """Return the command of a worker on a host with this Python."""
        if self.program is not None:
            return self.program.command(interpreter)
        settings = {name: value for name, value in self.settings.items() if name not in user_program.ENVIRONMENT_FLAGS}
        words = flags.to_arguments(settings)
        return (interpreter, "-m", "esync.worker", *words)


def common_environment(options: argparse.Namespace, folder: Path) -> WorkerEnvironment:
    """Return the environment on all devices of a job whose logs are in a folder."""
    events = options.tensorboard
    if events is not None:
        events = str(same_below(events, folder, options.log_dir))
    return replace(environment_of(options), log_dir=str(folder), tensorboard=events)


def worker_specs(workers: Mapping[int, WorkerEntry], resources: JobResources, job: WorkerJob) -> list[ProcessSpec]:
    """Return the processes of workers, given by their numbers in the description."""
    folders = device_folders(workers.values())
    return [
        _worker(number, worker, folder, resources, job)
        for (number, worker), folder in zip(workers.items(), folders, strict=True)
    ]


def _worker(number: int, worker: WorkerEntry, folder: str, resources: JobResources, job: WorkerJob) -> ProcessSpec:
    variables, slot = dict(job.cluster), None
    if "PMI_PORT" in job.cluster:
        variables["PMI_ID"] = str(number)
    elif job.cluster:
        variables |= {"DMLC_ROLE": "worker", **resources.interface(worker.host)}
        variables |= resources.port_variable(worker.host)
        slot = number
    settings = replace(
        job.common,
        rank=slot,
        device=worker.device,
        step_time=worker.step_time or job.common.step_time,
        straggler_events=worker.straggler_events,
        log_dir=str(Path(job.common.log_dir or "") / worker.host),
        tensorboard=job.common.tensorboard and str(Path(job.common.tensorboard) / worker.host),
        device_folder=folder,
        host_group=job.groups.get(number),
    )
    variables |= {**resources.threads(worker.host, worker.threads), PROGRESS_VARIABLE: "json", **settings.variables()}
    host = resources.hosts[worker.host]
    chosen = environment(host, variables)
    return ProcessSpec(
        f"worker-{number}",
        "worker",
        host,
        job.command(python(host)),
        chosen,
        device=folder,
        port=int(chosen.get("PORT", 0)),
        is_user_program=job.program is not None,
    )


def device_folders(workers: Iterable[WorkerEntry]) -> list[str]:
    """Return the folder of each worker's logs, below its host's.

    It is cpu or gpu0, and cpu-1 for a second worker on the same device.
    """
    counts: Counter[tuple[str, str]] = Counter()
    folders = []
    for worker in workers:
        device = worker.host, worker.device
        folders.append(f"{worker.device}-{counts[device]}" if counts[device] else worker.device)
        counts[device] += 1
    return folders
