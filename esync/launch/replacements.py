"""Decide what to do when a process ends too early: replace it, go on without it, or fail."""

import enum
from dataclasses import dataclass, field, replace

from ..runtime import progress
from ..runtime.environment import SLOT_VARIABLE, SUPERVISED_VARIABLE
from .processes import Process, ProgramError
from .spec import ProcessSpec

#: Exit code of a process that does not understand its command line.
BAD_USAGE = 2


class Verdict(enum.Enum):
    """What to do about a process that has ended when it should not have."""

    IGNORE = enum.auto()  # it had finished its work
    REPLACE = enum.auto()  # start a replacement
    RECONNECT = enum.auto()  # its connection was lost: start a replacement when its host or a spare one answers
    GO_ON = enum.auto()  # the other workers go on without it
    FAIL = enum.auto()  # the job has failed


@dataclass
class Replacement:
    """A process that was started to replace another one.

    Times are seconds since the beginning of the job.

    Attributes:
        name: the name of both.
        how: how the replaced process ended, in words.
        at: when its end was detected.
        ready: when the new process was ready to join the others; None before.
        joined: when it had the common model; None before.
        reported: when it reported its first round; None before.
        counted: whether it counts towards --max-restarts; after a lost connection it does not.
        error: the exception that ended the replaced process, if it has reported one.
    """

    name: str
    how: str
    at: float
    ready: float | None = None
    joined: float | None = None
    reported: float | None = None
    counted: bool = True
    error: ProgramError | None = None

    def follow(self, process: Process, began: float) -> None:
        """Update the times of the new process; `began` is the start of the job (time.monotonic)."""
        ready, joined = process.events.get(progress.READY), process.events.get(progress.JOINED)
        self.ready = ready["at"] - began if ready else None
        self.joined = joined["at"] - began if joined else None
        if self.reported is None and process.progress is not None:
            self.reported = process.reported - began


@dataclass
class Replacements:
    """Policy for the replacement of a job's processes, and the record of replacements.

    Args:
        restarts: how often each process may be replaced; 0: never.
        elastic: whether the workers go on without lost ones.

    Attributes:
        entries: all replacements, in order.
        lost: names of workers that were not replaced, and without which the job goes on.
    """

    restarts: int
    elastic: bool
    entries: list[Replacement] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def count(self, name: str) -> int:
        """Return how many replacements of a process count towards --max-restarts."""
        return sum(replacement.name == name and replacement.counted for replacement in self.entries)

    def repeats(self, process: Process) -> bool:
        """Return whether a process has failed like the one that it replaced.

        Both have failed with the same exception, either after equally many rounds or each in its
        first rounds. The error is then most likely in the program or its data, and another
        replacement would fail, too. With --elastic the answer is always False, because the
        servers expect all replacements.
        """
        if process.error is None or self.elastic:
            return False
        previous = [replacement.error for replacement in self.entries if replacement.name == process.spec.name][-1:]
        same = [error for error in previous if error is not None and error.reason == process.error.reason]
        return any(process.error.rounds in (0, 1, error.rounds) for error in same)

    def why_not(self, process: Process) -> str:
        """Return why a process is not replaced any more, as a clause to append to how it ended.

        Returns "" if neither --max-restarts nor a repeated error is the reason.
        """
        if self.repeats(process):
            return ", by the same error at the same place as the process that it replaced: it would happen again"
        count = self.count(process.spec.name)
        allowed = "1 replacement" if count == 1 else f"{count} replacements"
        return f", after {allowed}, as many as --max-restarts allows" if 0 < self.restarts <= count else ""

    def withdraw(self, name: str) -> None:
        """Remove the replacement of a process that is given up as unreachable: it never joined."""
        self.entries = [
            replacement
            for replacement in self.entries
            if replacement.name != name or replacement.counted or replacement.joined is not None
        ]

    def verdict(self, process: Process) -> Verdict:
        """Decide what to do about a process that has ended when it should not have."""
        spec = process.spec
        if progress.DONE in process.events:
            return Verdict.IGNORE
        replaced = any(replacement.name == spec.name for replacement in self.entries)
        begun = spec.resumable or progress.JOINED in process.events or replaced
        if process.cut_off and begun and self.restarts and (spec.resumable or spec.role == "worker"):
            return Verdict.RECONNECT
        if progress.LEFT in process.events:
            return Verdict.FAIL  # the run is over, so that a replacement cannot join
        if spec.resumable:
            return Verdict.REPLACE if self.count(spec.name) < self.restarts else Verdict.FAIL
        if spec.role != "worker" or process.exit_code in (0, BAD_USAGE):
            return Verdict.FAIL
        if not begun or progress.OVER in process.events:
            return Verdict.FAIL  # it would fail again, or it has ended the whole job
        if self.count(spec.name) < self.restarts and not self.repeats(process):
            return Verdict.REPLACE
        aside = process.events.get(progress.ASIDE, {}).get("aside", False)
        return Verdict.GO_ON if self.elastic or aside else Verdict.FAIL

    def supervised(self, spec: ProcessSpec) -> ProcessSpec:
        """Return the process to start; a worker's environment has its number of replacements left."""
        if spec.role != "worker" or not (self.restarts or self.elastic):
            return spec
        # With --elastic the servers must not wait for a replacement that will not come.
        remaining = self.restarts - self.count(spec.name) if self.elastic else self.restarts
        return replace(spec, environment={**spec.environment, SUPERVISED_VARIABLE: str(remaining)})

    def respawn(self, process: Process, new_spec: ProcessSpec | None = None) -> ProcessSpec:
        """Return the replacement of a process.

        Args:
            process: the process that has ended.
            new_spec: the same process on another host; None means its own host.
        """
        spec = self.supervised(new_spec or process.spec)
        environment = dict(spec.environment)
        # The replacement listens at another port, so that it gets no messages for the dead process.
        environment.pop("PORT", None)
        slot = process.spec.environment.get(SLOT_VARIABLE)
        if progress.JOINED in process.events:
            slot = str(process.events[progress.JOINED]["rank"])
        if slot is not None:
            environment[SLOT_VARIABLE] = slot
        return replace(spec, environment=environment)


def is_worker_0(process: Process) -> bool:
    """Return whether a worker is worker 0 or its replacement."""
    joined = process.events.get(progress.JOINED)
    slot = process.spec.environment.get(SLOT_VARIABLE) if joined is None else joined["rank"]
    return str(slot) == "0"
