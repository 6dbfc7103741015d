"""How a job has ended: its failures, replacements and lost workers."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from .replacements import Replacement


@dataclass(frozen=True)
class Failure:
    """A process that has ended when it should not have.

    Attributes:
        name: the process's name.
        where: its host and device.
        how: exit code or signal, in words.
        log: the file with its output.
        last_lines: the end of its output.
        consequence: whether it has ended because another process had failed.
    """

    name: str
    where: str
    how: str
    log: Path
    last_lines: tuple[str, ...] = ()
    consequence: bool = False


@dataclass
class JobOutcome:
    """How a job has ended.

    Attributes:
        began: seconds since 1970.
        seconds: from the start of the first process to the end of the last one.
        failures: in the order of their detection, except that consequences of others come last.
        interrupted: name of the signal that ended the job, "" if none did.
        preempted: name of the signal after which the workers were given time to write a checkpoint, "" if
            none came.
        exit_codes: exit codes of the processes by name, without those that launch has terminated.
        replacements: processes that were started to replace others.
        lost: names of workers without which the job went on.
        lost_hosts: hosts that no longer answered, and without which the job went on.
    """

    began: float = field(default_factory=time.time)
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    interrupted: str = ""
    preempted: str = ""
    exit_codes: dict[str, int] = field(default_factory=dict)
    replacements: list[Replacement] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    lost_hosts: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the job was completed."""
        return not self.failures and not self.interrupted and not self.preempted
