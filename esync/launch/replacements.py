"""Decide what follows when a process ends too early: replace it, go on without it, or fail the job."""

import enum
from dataclasses import dataclass, field, replace

from ..runtime import progress
from ..runtime.environment import SLOT_VARIABLE, SUPERVISED_VARIABLE
from .processes import Process
from .spec import ProcessSpec

#: Exit code of a process that does not understand its command line.
BAD_USAGE = 2


class Verdict(enum.Enum):
    """What to do about a process that has ended where it should not have."""

    IGNORE = enum.auto()  # it had done its work
    REPLACE = enum.auto()  # start another one in its place
    RECONNECT = enum.auto()  # the same, as soon as its host or a spare one answers: its connection was lost
    GO_ON = enum.auto()  # the other workers go on without it
    FAIL = enum.auto()  # the job has failed


@dataclass
class Replacement:
    """A process that was started in the place of another. Times are seconds since the beginning of the job.

    Attributes:
        name: of both.
        how: the first one ended, in words.
        at: when that was noticed.
        ready: when the new one had everything but the others; None while it has not.
        joined: when it had the common model.
        reported: when its first round was over.
        counted: whether it counts towards --max-restarts: not where a connection was lost.
    """

    name: str
    how: str
    at: float
    ready: float | None = None
    joined: float | None = None
    reported: float | None = None
    counted: bool = True

    def follow(self, process: Process, began: float) -> None:
        """Note how far the new process is; `began`: the beginning of the job, time.monotonic."""
        ready, joined = process.events.get(progress.READY), process.events.get(progress.JOINED)
        self.ready = ready["at"] - began if ready else None
        self.joined = joined["at"] - began if joined else None
        if self.reported is None and process.progress is not None:
            self.reported = process.reported - began


@dataclass
class Replacements:
    """Decides, and keeps count.

    Args:
        restarts: how often each process may be replaced; 0: never.
        elastic: whether the workers go on without those that are gone.

    Attributes:
        made: all of them, in order.
        lost: workers that were not replaced, and whose loss does not end the job.
    """

    restarts: int
    elastic: bool
    made: list[Replacement] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def count(self, name: str) -> int:
        """Return how many replacements a process has had that count towards --max-restarts."""
        return sum(each.name == name and each.counted for each in self.made)

    def exhausted(self, name: str) -> str:
        """Return why a process is not replaced any more, to follow how it ended; "" where that is not the reason."""
        count = self.count(name)
        allowed = "1 replacement" if count == 1 else f"{count} replacements"
        return f", after {allowed}, as many as --max-restarts allows" if 0 < self.restarts <= count else ""

    def take_back(self, name: str) -> None:
        """Forget the replacement of an unreachable process that is given up: it has never joined."""
        self.made = [each for each in self.made if each.name != name or each.counted or each.joined is not None]

    def verdict(self, process: Process) -> Verdict:
        """Decide what to do about a process that has ended where it should not have."""
        spec = process.spec
        if progress.DONE in process.events:
            return Verdict.IGNORE
        replaced = any(each.name == spec.name for each in self.made)
        begun = spec.resumable or progress.JOINED in process.events or replaced
        if process.cut_off and begun and self.restarts and (spec.resumable or spec.role == "worker"):
            return Verdict.RECONNECT
        if spec.resumable:
            return Verdict.REPLACE if self.count(spec.name) < self.restarts else Verdict.FAIL
        if spec.role != "worker" or process.exit_code in (0, BAD_USAGE):
            return Verdict.FAIL
        if not begun or progress.OVER in process.events:
            return Verdict.FAIL  # it would fail again, or it has ended the whole job
        if self.count(spec.name) < self.restarts:
            return Verdict.REPLACE
        return Verdict.GO_ON if self.elastic else Verdict.FAIL

    def supervised(self, spec: ProcessSpec) -> ProcessSpec:
        """Return the process as it is started: a worker is told how often it will still be replaced."""
        if spec.role != "worker" or not (self.restarts or self.elastic):
            return spec
        # With --elastic the servers must not wait for a replacement that will not come.
        left = self.restarts - self.count(spec.name) if self.elastic else self.restarts
        return replace(spec, environment={**spec.environment, SUPERVISED_VARIABLE: str(left)})

    def again(self, process: Process, place: ProcessSpec | None = None) -> ProcessSpec:
        """Return what to start in the place of a process.

        Args:
            process: the one that has ended.
            place: the same process as another host would run it; None: on its own host.
        """
        spec = self.supervised(place or process.spec)
        environment = dict(spec.environment)
        # What was meant for the dead one must not reach the new one: so it listens at another port.
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
