"""What becomes of a process that has ended where it should not have: another in its place, a loss, or a failure."""

from dataclasses import dataclass, field, replace

from .. import progress
from ..environment import SLOT_VARIABLE, SUPERVISED_VARIABLE
from .processes import Process
from .spec import ProcessSpec

REPLACE, AWAIT, LOSE, FAIL, NEEDLESS = "replace", "await", "lose", "fail", "needless"
#: Exit code of a process that does not understand its command line.
BAD_USAGE = 2


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
        counted: whether it is one of --max-restarts: not where a connection was lost.
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
        """How many of its replacements a process has had."""
        return sum(each.name == name and each.counted for each in self.made)

    def take_back(self, name: str) -> None:
        """Forget the replacement of a process that no host has answered for."""
        self.made = [each for each in self.made if each.name != name or each.counted or each.joined is not None]

    def verdict(self, process: Process) -> str:
        """REPLACE, AWAIT (its host), LOSE, FAIL, or NEEDLESS: it had done all that it had to."""
        spec = process.spec
        if progress.DONE in process.events:
            return NEEDLESS
        replaced = any(each.name == spec.name for each in self.made)
        begun = spec.resumable or progress.JOINED in process.events or replaced
        if process.cut_off and begun and self.restarts and (spec.resumable or spec.role == "worker"):
            return AWAIT
        if spec.resumable:
            return REPLACE if self.count(spec.name) < self.restarts else FAIL
        if spec.role != "worker" or process.exit_code in (0, BAD_USAGE):
            return FAIL
        if not begun or progress.OVER in process.events:
            return FAIL  # it would fail again, or it has ended the whole job
        if self.count(spec.name) < self.restarts:
            return REPLACE
        return LOSE if self.elastic else FAIL

    def supervised(self, spec: ProcessSpec) -> ProcessSpec:
        """The process as it is started: a worker is told that its death need not end the job, and is replaced."""
        if spec.role != "worker" or not (self.restarts or self.elastic):
            return spec
        # One that the others can go on without is not promised to be replaced once too often.
        left = self.restarts - self.count(spec.name) if self.elastic else self.restarts
        return replace(spec, environment={**spec.environment, SUPERVISED_VARIABLE: str(left)})

    def again(self, process: Process, place: ProcessSpec | None = None) -> ProcessSpec:
        """What is started in the place of a process; `place`: the same one as another host would have it."""
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


def is_first(process: Process) -> bool:
    """Whether a worker is, or stands for, worker 0."""
    joined = process.events.get(progress.JOINED)
    slot = process.spec.environment.get(SLOT_VARIABLE) if joined is None else joined["rank"]
    return str(slot) == "0"
