"""The settings with which rank 0 begins a job on the state server."""

from dataclasses import dataclass

from .. import config
from .straggler_policies import OnlinePolicySettings
from .tier_settings import TierSettings


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
