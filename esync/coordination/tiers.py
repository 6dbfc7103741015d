"""Tiers: which workers set the rhythm of the rounds, and which are left out; pure functions.

The workers of a tier are of like speed. Rounds are those of the first tier; the others join a round
when they are done with what they have, and nobody waits for them.
docs/internals/coordination.md explains the rules.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .. import config
from .decision import NOT_READY, READY, ExchangeDecision, lease_share
from .records import Record

AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class TierSettings:
    """How the workers of a job are divided.

    Attributes:
        tiers: tier of each rank, from 0; empty: all are of the first; None: by their speeds
            (`divide`).
        leave_out: ranks that are left out; None: by their shares of the speed (`left_out`).
        exchange_share: share of a round that an exchange may take, by which the number of
            iterations is chosen (`iterations_for`); None: the number is given.
    """

    tiers: tuple[int, ...] | None = None
    leave_out: tuple[int, ...] | None = ()
    exchange_share: float | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "TierSettings":
        """Return the settings from the fields that `flat` has returned."""
        settings: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**settings)

    @property
    def divides(self) -> bool:
        """Whether there can be workers that rounds do not wait for."""
        return self.tiers != () or self.leave_out != ()

    @property
    def flat(self) -> dict[str, Any]:
        """The settings as JSON can hold them."""
        return asdict(self)


def divide(paces: Mapping[int, float], before: Mapping[int, int]) -> dict[int, int]:
    """Divide workers into tiers by their speeds.

    A tier begins with the fastest worker that is in none yet. Those belong to it whose iterations
    last up to config.TIER_RATIO times as long as its own. A worker changes its tier only where it is
    beyond that limit by the share config.TIER_HYSTERESIS, so that it does not go to and fro.

    Args:
        paces: rank → seconds of an iteration, above 0.
        before: rank → its tier until now, of those that have had one.

    Returns:
        Rank → tier, from 0.
    """
    tiers: dict[int, int] = {}
    rest = sorted(paces, key=lambda rank: (paces[rank], rank))
    tier = 0
    while rest:
        limit = config.TIER_RATIO * paces[rest[0]]
        remaining: list[int] = []
        for rank in rest:
            if rank not in before:
                reached = limit
            elif before[rank] <= tier:
                reached = limit * (1 + config.TIER_HYSTERESIS)
            else:
                reached = limit * (1 - config.TIER_HYSTERESIS)
            if paces[rank] <= reached:
                tiers[rank] = tier
            else:
                remaining.append(rank)
        rest, tier = remaining, tier + 1
    return tiers


def shares(paces: Mapping[int, float]) -> dict[int, float]:
    """Return each worker's share of the summed speed, given the seconds of its iterations."""
    total = sum(1 / pace for pace in paces.values())
    return {rank: 1 / pace / total for rank, pace in paces.items()}


def left_out(paces: Mapping[int, float], before: Collection[int]) -> set[int]:
    """Return the workers whose share of the summed speed is below config.LEAVE_OUT_SHARE.

    One that is left out comes back when its share is above that by config.LEAVE_OUT_HYSTERESIS.

    Args:
        paces: rank → seconds of an iteration, above 0.
        before: those that are left out until now.
    """
    returns = config.LEAVE_OUT_SHARE * (1 + config.LEAVE_OUT_HYSTERESIS)
    return {
        rank for rank, share in shares(paces).items() if share < (returns if rank in before else config.LEAVE_OUT_SHARE)
    }


def iterations_for(exchange: float, pace: float, share: float, before: int) -> int:
    """Return how many iterations the slowest worker does in a round.

    They are as many as it takes for an exchange to last no longer than a share of the round:
    E ≤ s · (E + H · c), the least whole number H. With s = ½ the iterations last as long as the
    exchange. A number that is larger than needed is kept as long as it is so by the share
    config.SLOWEST_ITERATIONS_SPARE at most.

    Args:
        exchange: seconds of an exchange, without the wait for others (E).
        pace: seconds of an iteration of the slowest worker, above 0 (c).
        share: s, between 0 and 1.
        before: the number until now.
    """
    needed = min(exchange * (1 - share) / (share * pace), config.SLOWEST_ITERATIONS_MOST)
    least = before * (1 - config.SLOWEST_ITERATIONS_SPARE)
    return before if least <= needed <= before else max(1, math.ceil(needed))


def decide_unawaited(
    slowest: Record, record: Record, round: int, slowest_iterations: int, epsilon: float, now: float
) -> ExchangeDecision:
    """Answer a worker of a slower tier: READY where another iteration would end after the round.

    It does at least one iteration, and as many as fit into a round of the first tier. The arguments
    are those of `decision.decide`, and `slowest` is the slowest worker of the first tier.
    """
    if record.ready:
        return READY
    if record.asked < 1:
        return NOT_READY
    seconds = slowest.speed_rank + slowest.held_up
    if slowest.round != round or slowest.ready:
        # About to begin the next round. Where it never does, since the run is over, time runs out.
        rest_time = slowest.exchange + slowest_iterations * seconds
    else:
        done = min(max(slowest.asked, 0), slowest_iterations - 1)
        rest_time = (slowest_iterations - done) * seconds
    rest_time -= now - slowest.finished
    slack = rest_time - (record.capability + record.round_trip + epsilon)
    if slack < 0:
        return READY
    return ExchangeDecision(False, lease_share(record.rank) * slack) if slack < math.inf else NOT_READY


class Division:
    """The division of one job's workers into tiers, and who is left out.

    Args:
        settings: as the job asks for.
        workers: number of workers.

    Attributes:
        settings: as given.
        tiers: tier of each rank.
        left_out: ranks that are left out. Rank 0, which evaluates and writes the model, never is.
        aside: ranks that rounds do not wait for: they have been told so, and have not said since
            that rounds wait for them again.
        shares: rank → its share of the summed speed, of those whose speeds are known.
    """

    def __init__(self, settings: TierSettings, workers: int) -> None:
        self.settings = settings
        self.tiers = list(settings.tiers or [0] * workers)
        self.left_out = set(settings.leave_out or ())
        self.aside: set[int] = set()
        self.shares: dict[int, float] = {}
        self._measured: set[int] = set()  # ranks that have been divided by their speed

    def update(self, records: Sequence[Record], absent: Collection[int]) -> None:
        """Divide the workers anew by what is known of their speeds; `absent` are those gone."""
        present = [record for record in records if record.capability > 0 and record.rank not in absent]
        capabilities = {record.rank: record.capability for record in present}
        self.shares = shares(capabilities)
        if self.settings.leave_out is None and len(capabilities) == len(records) - len(absent):
            self.left_out = left_out(capabilities, self.left_out) - {0}
        if self.settings.tiers is None:
            taking_part = {rank: pace for rank, pace in capabilities.items() if rank not in self.left_out}
            before = {rank: self.tiers[rank] for rank in taking_part if rank in self._measured}
            for rank, tier in divide(taking_part, before).items():
                self.tiers[rank] = tier
            self._measured.update(record.rank for record in records if record.measured)

    def tier(self, rank: int, absent: Collection[int]) -> int:
        """Return the tier of a rank, counted from the first tier that still has workers."""
        present = {tier for other, tier in enumerate(self.tiers) if other not in absent and other not in self.left_out}
        return sum(1 for tier in present if tier < self.tiers[rank])

    def state(self) -> dict[str, Any]:
        """Return everything that affects later answers, as JSON can hold it."""
        return {
            "settings": self.settings.flat,
            "tiers": self.tiers,
            "left_out": sorted(self.left_out),
            "aside": sorted(self.aside),
            "measured": sorted(self._measured),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Division":
        """Return a division that goes on as the one from which `state` was taken would."""
        self = cls(TierSettings.of(state["settings"]), len(state["tiers"]))
        self.tiers, self.left_out = list(state["tiers"]), set(state["left_out"])
        self.aside, self._measured = set(state["aside"]), set(state["measured"])
        return self
