"""Plan of a job as plain data, which can be printed or run."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..runtime.files import expanded
from . import ssh
from .hosts import Host


@dataclass(frozen=True)
class ProcessSpec:
    """One process of a cluster.

    Attributes:
        name: in messages, and of its log file.
        role: scheduler, server, state server or worker.
        host: where it runs.
        command: program and arguments.
        environment: on top of the one that is there.
        device: folder of a worker's logs: cpu, gpu0, cpu-1 …
        ready: beginning of the line that it prints when the processes after it may start; "" if
            they need not wait.
        endless: it runs until it is told to end.
        port: where it will listen; 0 where it chooses by itself.
        resumable: started once more, it goes on where it was.
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

    @property
    def where(self) -> str:
        """Return host and device."""
        return f"{self.host.name}/{self.device}" if self.device else self.host.name

    @property
    def shell(self) -> str:
        """Return the command as a line for a shell of this machine."""
        if self.host.here:
            return ssh.shell(self.environment, self.command)
        return ssh.pasteable(self.host, self.environment, self.command)


@dataclass(frozen=True)
class LaunchPlan:
    """Processes of a job, its options and folders.

    Attributes:
        processes: in the order in which they start.
        options: flags that all workers have in common, as a worker understands them.
        mode_folder: folder of the logs, {log_dir}/{network}/{mode}, named as the log tools know it;
            `~` in it is the home directory of whichever machine it is used on.
        remarks: what may surprise the user.
        spares: name of a spare host → name of a worker → what is started there where the worker's
            host is lost.
    """

    processes: tuple[ProcessSpec, ...]
    options: argparse.Namespace
    mode_folder: Path
    remarks: tuple[str, ...] = ()
    spares: Mapping[str, Mapping[str, ProcessSpec]] = field(default_factory=dict)

    @property
    def folder_here(self) -> Path:
        """Return the folder of the logs on this machine."""
        return expanded(self.mode_folder)

    @property
    def workers(self) -> list[ProcessSpec]:
        """Return the workers in the order of the description, which is also that of their ranks on one machine."""
        return [spec for spec in self.processes if spec.role == "worker"]

    @property
    def stand_ins(self) -> list[ProcessSpec]:
        """Return the workers as they are started on spare hosts."""
        return [spec for there in self.spares.values() for spec in there.values()]

    @property
    def hosts(self) -> list[Host]:
        """Every host that something runs on, or may have to, once."""
        return list({spec.host.name: spec.host for spec in (*self.processes, *self.stand_ins)}.values())

    @property
    def log_hosts(self) -> list[Host]:
        """Every host that workers write their logs on, or may have to, once."""
        return list({spec.host.name: spec.host for spec in (*self.workers, *self.stand_ins)}.values())
