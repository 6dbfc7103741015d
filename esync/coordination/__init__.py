"""Coordination: when a worker of ESync exchanges, and what is done about stragglers.

`coordinator` answers the workers by `decision`, out of their `records`, in plain Python; `client`
asks a state server for that over HTTP (`http_client`), and `delayed` does so in the background.
`stragglers` detects slow workers for `straggler_policies`, and `round_reporter` tells the dashboard
about rounds. Needs no MXNet and no Django; may import `config` and `runtime`.
"""

from collections.abc import Sequence
from typing import Protocol

from ..runtime.futures import Handle
from .decision import ExchangeDecision
from .straggler_policies import OnlinePolicySettings, PolicyDirective
from .tiers import TierSettings

__all__ = ["Coordination", "ExchangeDecision", "OnlinePolicySettings", "PolicyDirective", "TierSettings"]


class Coordination(Protocol):
    """The state server as the ESync algorithm sees it: one worker's view (paper, Algorithm 1).

    An implementation knows the worker's rank and keeps the round, which starts at 1 and follows
    `reset`. It may wait for the answer to a question (blocking mode), or have it arrive in the
    background (delayed ACK): the algorithm goes on while the handle is not done.

    Attributes:
        round: the round that this worker is in.
        round_trip: seconds that the newest answered question took; 0 before the first.
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
            watching: asks the coordinator to look for stragglers, with these settings.
            tiering: asks it to divide the workers into tiers.
        """
        ...

    def ask(self, iteration: int, capability: float) -> Handle[ExchangeDecision]:
        """Ask after a local iteration whether to exchange. One question at a time.

        Args:
            iteration: local iterations done in this round; 0 never gets READY.
            capability: mean seconds of the iterations since the last question, waiting left out and
                *not* smoothed (the coordinator smooths); 0 while it is not known.
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
        """Report that this worker holds the model of the next round, `round`, and begins it.

        Args:
            round: the round.
            rejoin: this worker has taken over the slot of a dead one: what that one has said about
                this round is void.
            members: the ranks that take part in the rounds from now on, where some are dead; None:
                nothing has changed.
            aside: rounds do not wait for this worker, as it has been told.
            exchange: seconds that its exchange has taken, without the wait for others.
        """
        ...

    def tell(self, since: int, steps: int, seconds: float) -> Handle[PolicyDirective]:
        """Tell how long this worker's steps take; see `straggler_policies.OnlinePolicy.tell`."""
        ...

    def close(self) -> None:
        """Close the connection to the state server; no question follows."""
        ...
