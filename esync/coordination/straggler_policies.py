"""Online policies of Sync-Switch, for stragglers in synchronous training; run by the state server.

The two policies are named in the paper (Li, Mangoubi, Xu, Guo, ICDCS 2021). Their details are
reconstructions: the authors' repository has no code for them, only the logs of runs in which the
segments were started by hand. Those logs show what greedy does with the planned work; that more
than half of the workers stay, and when an elastic straggler comes back, are choices made here
(docs/sync_switch.md).

Plain Python without clocks: the workers tell their own seconds, and the answer to each of them is
the directive that holds now. Rank 0 (or whoever leads the rounds) passes it on to the parameter
servers with its commits.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .. import config
from .stragglers import Detection, Detector


@dataclass(frozen=True)
class PolicyDirective:
    """The wish of a policy, as long as the schedule says synchronous.

    Attributes:
        excluded: ranks whose commits the rounds are not to wait for.
        asynchronous: train asynchronously meanwhile.
    """

    excluded: tuple[int, ...] = ()
    asynchronous: bool = False


def elastic(stragglers: Collection[int], workers: int) -> PolicyDirective:
    """Go on without the stragglers; more than half of the workers always stay (the paper's elastic policy)."""
    return PolicyDirective(excluded=tuple(sorted(stragglers)[: (workers - 1) // 2]))


def greedy(stragglers: Collection[int], workers: int) -> PolicyDirective:
    """Train asynchronously as long as there is a straggler (the paper's greedy policy).

    `SyncSwitch` takes the samples of such a detour from the schedule's asynchronous share, as the
    published runs do: the planned synchronous share is still trained synchronously afterwards.
    """
    return PolicyDirective(asynchronous=bool(stragglers))


ELASTIC, GREEDY = "elastic", "greedy"
#: Name on the command line → what it makes of the stragglers among so many workers.
POLICIES: dict[str, Callable[[Collection[int], int], PolicyDirective]] = {ELASTIC: elastic, GREEDY: greedy}


@dataclass(frozen=True)
class OnlinePolicySettings:
    """The settings of an online policy: what a job asks for.

    Attributes:
        policy: a key of POLICIES.
        detection: when a worker counts as a straggler.
    """

    policy: str = config.ONLINE_POLICY
    detection: Detection = field(default_factory=Detection)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "OnlinePolicySettings":
        """From what `flat` has made of it."""
        return cls(fields["policy"], Detection(**{name: fields[name] for name in fields if name != "policy"}))

    @property
    def flat(self) -> dict[str, Any]:
        """The fields as JSON can hold them, without levels."""
        return {"policy": self.policy, **asdict(self.detection)}


class OnlinePolicy:
    """The online policy of one job: its detector, and the directive that follows from it.

    Args:
        workers: how many there are.
        watching: what the job asks for.

    Attributes:
        directive: what holds now.
    """

    def __init__(self, workers: int, watching: OnlinePolicySettings) -> None:
        self.watching = watching
        self.directive = PolicyDirective()
        self._workers = workers
        self._told = [0] * workers  # steps that each worker's process has told
        self._detector = Detector(workers, watching.detection)

    @property
    def stragglers(self) -> frozenset[int]:
        """The ranks of the stragglers."""
        return self._detector.stragglers

    def tell(self, rank: int, since: int, steps: int, seconds: float) -> PolicyDirective:
        """Take a worker's word, and answer it.

        Args:
            rank: who tells.
            since: steps that its process had told before: a message that comes twice counts once,
                and one from the beginning is another process's.
            steps: how many more it has done.
            seconds: of its own that they took together, without waiting for others.
        """
        if since == 0 and self._told[rank]:
            self._detector.forget(rank)
            self._told[rank] = 0
        if since == self._told[rank]:
            self._told[rank] += steps
            self._detector.tell(rank, steps, seconds)
            waited_for = [other for other in range(self._workers) if other not in self.directive.excluded]
            if self._detector.look(waited_for):
                self.directive = POLICIES[self.watching.policy](self._detector.stragglers, self._workers)
        return self.directive

    def state(self) -> dict[str, Any]:
        """Everything that decides about later answers, as JSON can hold it."""
        return {
            "workers": self._workers,
            "watching": self.watching.flat,
            "told": self._told,
            "directive": {"apart": self.directive.excluded, "asynchronous": self.directive.asynchronous},
            "detector": self._detector.state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "OnlinePolicy":
        """One that answers as the one would that `state` was taken from."""
        self = cls(state["workers"], OnlinePolicySettings.of(state["watching"]))
        self._told = list(state["told"])
        self.directive = PolicyDirective(tuple(state["directive"]["apart"]), state["directive"]["asynchronous"])
        self._detector.restore(state["detector"])
        return self
