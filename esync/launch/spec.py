"""The plan of a job as plain data, which can be printed or run."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..runtime.files import expanded
from . import ssh
from .hosts import Host
from .user_program import UserProgram


@dataclass(frozen=True)
class ProcessSpec:
    """One process of a cluster.

    Attributes:
        name: its name in messages and of its log file.
        role: scheduler, server, state server or worker.
        host: where it runs.
        command: program and arguments.
        environment: variables to add to those of its host.
        device: folder of a worker's logs: cpu, gpu0, cpu-1 …
        ready: beginning of the line that it prints when the next processes may start; "" if they
            need not wait.
        endless: whether it runs until it is terminated.
        port: where it listens; 0 if it chooses the port itself.
        resumable: whether it continues where it was when it is started again.
        is_user_program: whether it is the user's program, not one of this package.
    """

    name: str
    role: str
    host: Host
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    ready: str = ""
    endless: bool = False
    port: int = 0
    resumable: bool = False
    is_user_program: bool = False

    @property
    def where(self) -> str:
        """Its host and device."""
        return f"{self.host.name}/{self.device}" if self.device else self.host.name

    @property
    def shell(self) -> str:
        """The command as a line for a shell on this machine."""
        if self.host.local:
            return ssh.shell(self.environment, self.command)
        return ssh.pasteable(self.host, self.environment, self.command)


@dataclass(frozen=True)
class LaunchPlan:
    """The processes of a job, their common options and folders.

    Attributes:
        processes: in the order in which they start.
        options: flags that all workers have in common, as a worker reads them.
        mode_folder: folder of the logs, {log_dir}/{network}/{mode}, as the log tools expect it, or
            {mode}@{name} for a run with a name. `~` in it is the home directory of the machine on
            which it is used. With a user's program, {network} is the program's name.
        remarks: messages about settings that may surprise the user.
        spares: name of a spare host → name of a worker → process to start there when the worker's
            host is lost.
        program: the user's program that the workers run; None for the built-in worker.
        preemption_notice: seconds that workers have to write a checkpoint and end, after a signal that
            the machines will be taken away; None: a signal ends the job at once.
    """

    processes: tuple[ProcessSpec, ...]
    options: argparse.Namespace
    mode_folder: Path
    remarks: tuple[str, ...] = ()
    spares: Mapping[str, Mapping[str, ProcessSpec]] = field(default_factory=dict)
    program: UserProgram | None = None
    preemption_notice: float | None = None

    @property
    def trained(self) -> str:
        """Name of the network, or of the user's program."""
        return self.program.name if self.program else str(self.options.network)

    @property
    def folder_here(self) -> Path:
        """The folder of the logs on this machine."""
        return expanded(self.mode_folder)

    @property
    def workers(self) -> list[ProcessSpec]:
        """The workers in the order of the description, which on one machine is that of their ranks."""
        return [spec for spec in self.processes if spec.role == "worker"]

    @property
    def stand_ins(self) -> list[ProcessSpec]:
        """The workers as they may be started on spare hosts."""
        return [spec for by_name in self.spares.values() for spec in by_name.values()]

    @property
    def hosts(self) -> list[Host]:
        """Every host on which a process runs or may be started, without duplicates."""
        return list({spec.host.name: spec.host for spec in (*self.processes, *self.stand_ins)}.values())

    @property
    def log_hosts(self) -> list[Host]:
        """Every host on which a worker runs or may be started, and writes its logs, without duplicates."""
        return list({spec.host.name: spec.host for spec in (*self.workers, *self.stand_ins)}.values())
