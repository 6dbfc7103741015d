"""Online policies of Sync-Switch, for stragglers in synchronous training; run by the state server.

The two policies are named in the paper (Li, Mangoubi, Xu, Guo, ICDCS 2021). Their details are
reconstructions: the authors' repository has no code for them, only the logs of runs in which the
segments were started by hand. Those logs show what greedy does with the planned work. That more
than half of the workers stay, and when an elastic straggler comes back, are choices made here
(docs/how-to/sync_switch.md).

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
    """What a policy asks for, while the schedule says synchronous.

    Attributes:
        excluded: ranks whose commits the rounds are not to wait for.
        asynchronous: whether to train asynchronously meanwhile.
    """

    excluded: tuple[int, ...] = ()
    asynchronous: bool = False


def elastic(stragglers: Collection[int], workers: int) -> PolicyDirective:
    """Return the directive of the paper's elastic policy: go on without the stragglers.

    More than half of the workers always stay.
    """
    return PolicyDirective(excluded=tuple(sorted(stragglers)[: (workers - 1) // 2]))


def greedy(stragglers: Collection[int], workers: int) -> PolicyDirective:
    """Return the directive of the paper's greedy policy: go asynchronous during a straggler.

    `SyncSwitch` takes the samples of such a detour from the schedule's asynchronous share, as the
    published runs do: the planned synchronous share is still trained synchronously afterwards.
    """
    return PolicyDirective(asynchronous=bool(stragglers))


ELASTIC, GREEDY = "elastic", "greedy"
#: Name on the command line → the policy, which is given the stragglers and the number of workers.
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
        """Return the settings from the fields that `flat` has returned."""
        return cls(fields["policy"], Detection(**{name: fields[name] for name in fields if name != "policy"}))

    @property
    def flat(self) -> dict[str, Any]:
        """The settings as one flat dict that JSON can hold."""
        return {"policy": self.policy, **asdict(self.detection)}


class OnlinePolicy:
    """The online policy of one job: its detector, and the directive that follows from it.

    Args:
        workers: number of workers.
        watching: the settings that the job asks for.

    Attributes:
        directive: the one that holds now.
    """

    def __init__(self, workers: int, watching: OnlinePolicySettings) -> None:
        self.watching = watching
        self.directive = PolicyDirective()
        self._workers = workers
        self._told = [0] * workers  # steps that each worker's process has told
        self._detector = Detector(workers, watching.detection)

    @property
    def stragglers(self) -> frozenset[int]:
        """Ranks of the stragglers."""
        return self._detector.stragglers

    def tell(self, rank: int, since: int, steps: int, seconds: float) -> PolicyDirective:
        """Take what a worker tells about its steps, and return the directive that holds now.

        Args:
            rank: of the worker.
            since: steps that its process had told before: a message that comes twice counts once,
                and one from the beginning is another process's.
            steps: number of steps done since then.
            seconds: time of its own that they took together, without waiting for others.
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
        """Return everything that affects later answers, as JSON can hold it."""
        return {
            "workers": self._workers,
            "watching": self.watching.flat,
            "told": self._told,
            "directive": {"apart": self.directive.excluded, "asynchronous": self.directive.asynchronous},
            "detector": self._detector.state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "OnlinePolicy":
        """Return a policy that answers as the one from which `state` was taken would."""
        self = cls(state["workers"], OnlinePolicySettings.of(state["watching"]))
        self._told = list(state["told"])
        self.directive = PolicyDirective(tuple(state["directive"]["apart"]), state["directive"]["asynchronous"])
        self._detector.restore(state["detector"])
        return self
