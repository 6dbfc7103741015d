"""Coordination: when a worker of ESync exchanges, and what is done about stragglers.

`coordinator` answers the workers' queries with `decision`, using their `records`; `client` sends queries to
a state server over HTTP (`http_client`), and `delayed` does so in the background. `stragglers` detects slow
workers for `straggler_policies`, and `round_reporter` reports rounds to the dashboard. Needs neither MXNet
nor Django; may import `config` and `runtime`.
"""

from collections.abc import Sequence
from typing import Protocol

from ..runtime.futures import Handle
from .decision import ExchangeDecision
from .straggler_policies import OnlinePolicySettings, PolicyDirective
from .tiers import TierSettings

__all__ = ["Coordination", "ExchangeDecision", "OnlinePolicySettings", "PolicyDirective", "TierSettings"]


class Coordination(Protocol):
    """One worker's interface to the state server (paper, Algorithm 1).

    An implementation has the worker's rank and the round, which starts at 1 and is set by `reset`. It may
    wait for the answer to a query (blocking mode), or receive it in the background (delayed ACK), in which
    case the algorithm continues while the handle is not done.

    Attributes:
        round: the current round of this worker.
        round_trip: seconds of the newest answered query; 0 before the first.
    """

    round: int

    @property
    def round_trip(self) -> float: ...  # noqa: D102 - see the class

    def init(
        self,
        num_workers: int,
        epsilon: float | None,
        slowest_iterations: int = 1,
        watching: OnlinePolicySettings | None = None,
        tiering: TierSettings | None = None,
    ) -> None:
        """Begin a training (rank 0 only, before any worker asks).

        Args:
            num_workers: number of workers.
            epsilon: seconds; None leaves it to the coordinator.
            slowest_iterations: local iterations of the slowest worker in each round.
            watching: settings for the detection of stragglers; None for no detection.
            tiering: settings for the division of the workers into tiers; None for none.
        """
        ...

    def ask(self, iteration: int, capability: float) -> Handle[ExchangeDecision]:
        """Query after a local iteration whether to exchange. Only one query may be in progress.

        Args:
            iteration: local iterations done in this round; 0 never gets READY.
            capability: mean seconds of the iterations since the last query, without waits and *not*
                smoothed (the coordinator smooths); 0 while unknown.
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
        """Report that this worker has the model of the next round, `round`, and begins it.

        Args:
            round: the round.
            rejoin: this worker has taken over the slot of a dead one, whose messages about this round
                are void.
            members: the ranks that take part in the rounds from now on; None if they have not changed.
            aside: rounds do not wait for this worker, as requested.
            exchange: seconds of its exchange, without the wait for others.
        """
        ...

    def tell(self, since: int, steps: int, seconds: float) -> Handle[PolicyDirective]:
        """Report the duration of this worker's steps; see `straggler_policies.OnlinePolicy.tell`."""
        ...

    def close(self) -> None:
        """Close the connection to the state server; no queries follow."""
        ...
