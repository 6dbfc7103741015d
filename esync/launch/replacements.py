"""Decide what follows when a process ends too early: replace it, go on without it, or fail."""

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

    IGNORE = enum.auto()  # it had done its work
    REPLACE = enum.auto()  # start another one in its place
    RECONNECT = enum.auto()  # its connection was lost: do so as soon as its host or a spare one answers
    GO_ON = enum.auto()  # the other workers go on without it
    FAIL = enum.auto()  # the job has failed


@dataclass
class Replacement:
    """A process that was started in the place of another one.

    Times are seconds since the beginning of the job.

    Attributes:
        name: the name of both.
        how: how the first one ended, in words.
        at: when its end was noticed.
        ready: when the new one was ready to join the others; None while it is not.
        joined: when it had the common model; None while it has not.
        reported: when it reported its first round; None while it has not.
        counted: whether it counts towards --max-restarts, as it does unless a connection was lost.
        error: the exception that has ended the first one; None if it has said nothing of one.
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
        """Note how far the new process is; `began` is the beginning of the job (time.monotonic)."""
        ready, joined = process.events.get(progress.READY), process.events.get(progress.JOINED)
        self.ready = ready["at"] - began if ready else None
        self.joined = joined["at"] - began if joined else None
        if self.reported is None and process.progress is not None:
            self.reported = process.reported - began


@dataclass
class Replacements:
    """Decides about the processes of one job, and counts their replacements.

    Args:
        restarts: how often each process may be replaced; 0: never.
        elastic: whether the workers go on without those that are gone.

    Attributes:
        made: all replacements, in order.
        lost: workers that were not replaced, and without which the job goes on.
    """

    restarts: int
    elastic: bool
    made: list[Replacement] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def count(self, name: str) -> int:
        """Return how many replacements of a process count towards --max-restarts."""
        return sum(each.name == name and each.counted for each in self.made)

    def repeats(self, process: Process) -> bool:
        """Return whether a process has failed at the same place as the one that it replaced.

        That is, by the same exception, after as many rounds or in its first ones. A third process
        would most likely do the same: the error is in the program or its data. With --elastic this
        is left open, since the servers have been promised all replacements.
        """
        if process.error is None or self.elastic:
            return False
        before = [each.error for each in self.made if each.name == process.spec.name][-1:]
        same = [each for each in before if each is not None and each.reason == process.error.reason]
        return any(process.error.rounds in (0, 1, each.rounds) for each in same)

    def why_not(self, process: Process) -> str:
        """Return why a process is not replaced any more, in words that follow how it ended.

        Returns "" if neither --max-restarts nor an error that repeats itself is the reason.
        """
        if self.repeats(process):
            return ", by the same error at the same place as the process that it replaced: it would happen again"
        count = self.count(process.spec.name)
        allowed = "1 replacement" if count == 1 else f"{count} replacements"
        return f", after {allowed}, as many as --max-restarts allows" if 0 < self.restarts <= count else ""

    def take_back(self, name: str) -> None:
        """Forget the replacement of a process that is given up as unreachable: it never joined."""
        self.made = [each for each in self.made if each.name != name or each.counted or each.joined is not None]

    def verdict(self, process: Process) -> Verdict:
        """Decide what to do about a process that has ended when it should not have."""
        spec = process.spec
        if progress.DONE in process.events:
            return Verdict.IGNORE
        replaced = any(each.name == spec.name for each in self.made)
        begun = spec.resumable or progress.JOINED in process.events or replaced
        if process.cut_off and begun and self.restarts and (spec.resumable or spec.role == "worker"):
            return Verdict.RECONNECT
        if progress.LEFT in process.events:
            return Verdict.FAIL  # after the end of the run, in which nobody can take its place
        if spec.resumable:
            return Verdict.REPLACE if self.count(spec.name) < self.restarts else Verdict.FAIL
        if spec.role != "worker" or process.exit_code in (0, BAD_USAGE):
            return Verdict.FAIL
        if not begun or progress.OVER in process.events:
            return Verdict.FAIL  # it would fail again, or it has ended the whole job
        if self.count(spec.name) < self.restarts and not self.repeats(process):
            return Verdict.REPLACE
        unawaited = process.events.get(progress.ASIDE, {}).get("aside", False)
        return Verdict.GO_ON if self.elastic or unawaited else Verdict.FAIL

    def supervised(self, spec: ProcessSpec) -> ProcessSpec:
        """Return the process as it is to be started.

        A worker is told how often it will still be replaced.
        """
        if spec.role != "worker" or not (self.restarts or self.elastic):
            return spec
        # With --elastic the servers must not wait for a replacement that will not come.
        left = self.restarts - self.count(spec.name) if self.elastic else self.restarts
        return replace(spec, environment={**spec.environment, SUPERVISED_VARIABLE: str(left)})

    def again(self, process: Process, place: ProcessSpec | None = None) -> ProcessSpec:
        """Return what to start in the place of a process.

        Args:
            process: the one that has ended.
            place: the same process as another host would run it; None stands for its own host.
        """
        spec = self.supervised(place or process.spec)
        environment = dict(spec.environment)
        # It listens at another port, so that messages for the dead process do not reach it.
        environment.pop("PORT", None)
        slot = process.spec.environment.get(SLOT_VARIABLE)
        if progress.JOINED in process.events:
            slot = str(process.events[progress.JOINED]["rank"])
        if slot is not None:
            environment[SLOT_VARIABLE] = slot
        return replace(spec, environment=environment)


def is_worker_0(process: Process) -> bool:
    """Return whether a worker is worker 0, or was started in its place."""
    joined = process.events.get(progress.JOINED)
    slot = process.spec.environment.get(SLOT_VARIABLE) if joined is None else joined["rank"]
    return str(slot) == "0"
