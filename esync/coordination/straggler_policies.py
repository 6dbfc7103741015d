"""Online policies of Sync-Switch, for stragglers in synchronous training; run by the state server.

The two policies are named in the paper (Li, Mangoubi, Xu, Guo, ICDCS 2021). Their details are
reconstructions: the authors' repository has no code for them, only the logs of runs in which the
segments were started by hand. Those logs show what greedy does with the planned work. That more
than half of the workers stay, and when an elastic straggler comes back, are choices made here
(docs/how-to/sync_switch.md).

Workers report the seconds of their steps, and the answer is the current directive. The leader of
the rounds (usually rank 0) passes it on to the parameter servers with its commits.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from .. import config
from .stragglers import Detection, Detector, Measurements


@dataclass(frozen=True)
class PolicyDirective:
    """The request of a policy during the synchronous part of the schedule.

    Attributes:
        excluded: ranks whose commits rounds should not wait for.
        asynchronous: whether to train asynchronously for now.
    """

    excluded: tuple[int, ...] = ()
    asynchronous: bool = False


def elastic(stragglers: Collection[int], workers: int) -> PolicyDirective:
    """Return the directive of the paper's elastic policy: exclude stragglers, up to half of the workers."""
    return PolicyDirective(excluded=tuple(sorted(stragglers)[: (workers - 1) // 2]))


def greedy(stragglers: Collection[int], workers: int) -> PolicyDirective:
    """Return the directive of the paper's greedy policy: train asynchronously while there is a straggler.

    As in the published runs, `SyncSwitch` subtracts the samples of such a phase from the schedule's
    asynchronous share, so the planned synchronous share is still trained synchronously.
    """
    return PolicyDirective(asynchronous=bool(stragglers))


ELASTIC, GREEDY = "elastic", "greedy"
#: Name on the command line → policy, a function of the stragglers and the number of workers.
POLICIES: dict[str, Callable[[Collection[int], int], PolicyDirective]] = {ELASTIC: elastic, GREEDY: greedy}


@dataclass(frozen=True)
class OnlinePolicySettings(Detection):
    """The settings of the online policy of a job, and when a worker counts as a straggler.

    Attributes:
        policy: a key of POLICIES.
    """

    policy: str = config.ONLINE_POLICY


@dataclass
class OnlinePolicy:
    """The online policy of one job: its detector, and the current directive.

    Attributes:
        policy: a key of POLICIES.
        detector: detects the stragglers.
        reported: steps that each worker's process has reported.
        directive: the current directive.
    """

    policy: str
    detector: Detector
    reported: list[int]
    directive: PolicyDirective = field(default_factory=PolicyDirective)

    @classmethod
    def of(cls, workers: int, settings: OnlinePolicySettings) -> "OnlinePolicy":
        """Return the policy of a job with so many workers."""
        detector = Detector(settings, [Measurements() for _ in range(workers)])
        return cls(settings.policy, detector, [0] * workers)

    @property
    def stragglers(self) -> frozenset[int]:
        """Ranks of the stragglers."""
        return self.detector.stragglers

    def record_steps(self, rank: int, since: int, steps: int, seconds: float) -> PolicyDirective:
        """Record steps of a worker, and return the current directive.

        Duplicate messages are ignored. A message with `since` 0 after others is from a replacement.

        Args:
            rank: of the worker.
            since: number of steps that its process had reported before.
            steps: number of new steps.
            seconds: duration of the new steps, without waiting for others.
        """
        workers = len(self.reported)
        if since == 0 and self.reported[rank]:
            self.detector.forget(rank)
            self.reported[rank] = 0
        if since == self.reported[rank]:
            self.reported[rank] += steps
            self.detector.add_steps(rank, steps, seconds)
            waited_for = [other for other in range(workers) if other not in self.directive.excluded]
            if self.detector.update(waited_for):
                self.directive = POLICIES[self.policy](self.detector.stragglers, workers)
        return self.directive
