"""What becomes of a process that has ended where it should not have: another in its place, a loss, or a failure."""

from dataclasses import dataclass, field, replace

from .. import progress
from ..environment import SLOT_VARIABLE
from ..worker import SUPERVISED_VARIABLE
from .processes import Process
from .spec import ProcessSpec

REPLACE, LOSE, FAIL = "replace", "lose", "fail"
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
    """

    name: str
    how: str
    at: float
    ready: float | None = None
    joined: float | None = None
    reported: float | None = None

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
        """How often a process has been replaced."""
        return sum(each.name == name for each in self.made)

    def verdict(self, process: Process) -> str:
        """REPLACE, LOSE or FAIL."""
        spec = process.spec
        if spec.resumable:
            return REPLACE if self.count(spec.name) < self.restarts else FAIL
        if spec.role != "worker" or process.exit_code in (0, BAD_USAGE):
            return FAIL
        begun = progress.JOINED in process.events or self.count(spec.name) > 0
        if not begun or progress.OVER in process.events:
            return FAIL  # it would fail again, or it has ended the whole job
        if self.count(spec.name) < self.restarts:
            return REPLACE
        return LOSE if self.elastic else FAIL

    def supervised(self, spec: ProcessSpec) -> ProcessSpec:
        """The process as it is started: a worker is told that its death need not end the job."""
        if spec.role != "worker" or not (self.restarts or self.elastic):
            return spec
        return replace(spec, environment={**spec.environment, SUPERVISED_VARIABLE: "1"})

    def again(self, process: Process) -> ProcessSpec:
        """What is started in the place of a process."""
        environment = dict(process.spec.environment)
        # What was meant for the dead one must not reach the new one: so it listens at another port.
        environment.pop("PORT", None)
        joined = process.events.get(progress.JOINED)
        if joined is not None:
            environment[SLOT_VARIABLE] = str(joined["rank"])
        return replace(process.spec, environment=environment)
