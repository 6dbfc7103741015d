"""Coordination: when a worker of ESync exchanges, and how stragglers are handled.

`coordinator` answers the workers' questions, by `decision` and their `records`; `client` sends the
questions to a state server over HTTP (`http_client`), and `delayed` does so in the background.
`tiers` divides workers by speed, as `tier_settings` ask, `automatic_settings` chooses the settings of
rounds, `exchange_interval` computes local iterations per round, `stragglers` detects slow workers for
`straggler_policies`, and `round_reporter` sends reports of rounds to the dashboard. Needs neither MXNet
nor Django; may import `config`, `runtime` and `samples`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .. import config
from ..runtime.futures import Handle
from .decision import ExchangeDecision
from .straggler_policies import OnlinePolicySettings, PolicyDirective
from .tier_settings import TierSettings

__all__ = [
    "Coordination",
    "ExchangeDecision",
    "JobSettings",
    "OnlinePolicySettings",
    "PolicyDirective",
    "TierSettings",
]


@dataclass(frozen=True)
class JobSettings:
    """The settings of a job.

    Attributes:
        num_workers: number of workers.
        epsilon: seconds; None: chosen by the coordinator.
        slowest_iterations: local iterations of the slowest worker in each round.
        watching: settings for the detection of stragglers; None: there is none.
        tiering: settings for the division into tiers; None: there is none.
    """

    num_workers: int
    epsilon: float | None
    slowest_iterations: int = config.SLOWEST_ITERATIONS
    watching: OnlinePolicySettings | None = None
    tiering: TierSettings | None = None


class Coordination(Protocol):
    """The interface of one worker to the state server (paper, Algorithm 1).

    The round starts at 1, and is set by `reset`. An implementation may wait for the answer to a
    question (blocking mode), or receive it in the background (delayed ACK), while the algorithm
    continues until the handle is done.

    Attributes:
        round: the round that this worker is in.
        round_trip: seconds that the newest answered question took; 0 before the first.
    """

    round: int

    @property
    def round_trip(self) -> float: ...  # noqa: D102 - see the class

    def init(self, settings: JobSettings) -> None:
        """Start a training (rank 0 only, before any worker asks)."""
        ...

    def ask(self, iteration: int, capability: float) -> Handle[ExchangeDecision]:
        """Ask after a local iteration whether to exchange; one question at a time.

        Args:
            iteration: local iterations done in this round; the answer to 0 is never READY.
            capability: mean seconds of the iterations since the last question, without waiting and
                *not* smoothed (the coordinator does that); 0: not known.
        """
        ...

    def reset(
        self,
        round: int,
        rejoin: bool = False,
        members: Sequence[int] | None = None,
        aside: bool = False,
        exchange: float | None = None,
    ) -> None:
        """Report that this worker has the model of round `round`, and starts that round.

        Args:
            round: number of the round.
            rejoin: whether this worker has taken over the slot of a dead one, whose reports about
                this round are discarded.
            members: ranks that take part in the rounds from now on; None: no change.
            aside: whether rounds do not wait for this worker, according to an earlier answer.
            exchange: seconds of its exchange, without the wait for others.
        """
        ...

    def report_steps(self, since: int, steps: int, seconds: float) -> Handle[PolicyDirective]:
        """Report the duration of this worker's steps; see `straggler_policies.OnlinePolicy.record_steps`."""
        ...

    def close(self) -> None:
        """Close the connection to the state server; no question follows."""
        ...
