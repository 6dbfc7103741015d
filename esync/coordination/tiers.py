"""Tiers: which workers rounds wait for, and which workers are left out.

The workers of a tier have similar speeds. Rounds wait for the first tier only; the other workers
contribute to a round when they have finished their iterations. docs/internals/coordination.md
explains the rules.
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
        tiers: tier of each rank, from 0; empty: all are in the first; None: by speed (`divide`).
        leave_out: ranks that are left out; None: by share of the speed (`left_out`).
        exchange_share: share of a round that an exchange may take, from which the number of
            iterations follows (`iterations_for`); None: the number is fixed.
    """

    tiers: tuple[int, ...] | None = None
    leave_out: tuple[int, ...] | None = ()
    exchange_share: float | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "TierSettings":
        """Return the settings from the fields that `flat` has returned."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**values)

    @property
    def divides(self) -> bool:
        """Whether there may be workers that rounds do not wait for."""
        return self.tiers != () or self.leave_out != ()

    @property
    def flat(self) -> dict[str, Any]:
        """The settings as JSON can hold them."""
        return asdict(self)


def divide(paces: Mapping[int, float], before: Mapping[int, int]) -> dict[int, int]:
    """Divide workers into tiers by their speeds.

    Each tier starts with the fastest remaining worker, and includes workers whose iterations are at
    most config.TIER_RATIO times as long. A worker changes its tier only if it is beyond that limit
    by the share config.TIER_HYSTERESIS, which prevents frequent changes.

    Args:
        paces: rank → seconds of an iteration, above 0.
        before: rank → its present tier, if it has one.

    Returns:
        Rank → tier, from 0.
    """
    tiers: dict[int, int] = {}
    rest = sorted(paces, key=lambda rank: (paces[rank], rank))
    tier = 0
    while rest:
        limit = config.TIER_RATIO * paces[rest[0]]
        slower: list[int] = []
        for rank in rest:
            if rank not in before:
                bound = limit
            elif before[rank] <= tier:
                bound = limit * (1 + config.TIER_HYSTERESIS)
            else:
                bound = limit * (1 - config.TIER_HYSTERESIS)
            if paces[rank] <= bound:
                tiers[rank] = tier
            else:
                slower.append(rank)
        rest, tier = slower, tier + 1
    return tiers


def shares(paces: Mapping[int, float]) -> dict[int, float]:
    """Return each worker's share of the summed speed, given the seconds of its iterations."""
    total = sum(1 / pace for pace in paces.values())
    return {rank: 1 / pace / total for rank, pace in paces.items()}


def left_out(paces: Mapping[int, float], before: Collection[int]) -> set[int]:
    """Return the workers whose share of the summed speed is below config.LEAVE_OUT_SHARE.

    A worker that is left out returns when its share exceeds that by config.LEAVE_OUT_HYSTERESIS.

    Args:
        paces: rank → seconds of an iteration, above 0.
        before: ranks that are left out at present.
    """
    returns = config.LEAVE_OUT_SHARE * (1 + config.LEAVE_OUT_HYSTERESIS)
    return {
        rank for rank, share in shares(paces).items() if share < (returns if rank in before else config.LEAVE_OUT_SHARE)
    }


def iterations_for(exchange: float, pace: float, share: float, before: int) -> int:
    """Return how many local iterations the slowest worker should do in a round.

    It is the smallest H for which an exchange takes at most the share s of a round:
    E ≤ s · (E + H · c). With s = ½ the iterations last as long as the exchange. A present number
    that is too large by at most the share config.SLOWEST_ITERATIONS_SPARE is kept.

    Args:
        exchange: seconds of an exchange, without the wait for others (E).
        pace: seconds of an iteration of the slowest worker, above 0 (c).
        share: s, between 0 and 1.
        before: the present number.
    """
    needed = min(exchange * (1 - share) / (share * pace), config.SLOWEST_ITERATIONS_MAX)
    least = before * (1 - config.SLOWEST_ITERATIONS_SPARE)
    return before if least <= needed <= before else max(1, math.ceil(needed))


def decide_aside(
    slowest: Record, record: Record, round: int, slowest_iterations: int, epsilon: float, now: float
) -> ExchangeDecision:
    """Answer a worker of a slower tier: READY if another iteration would end after the round.

    The worker does at least one iteration, and as many as fit into a round of the first tier. See
    `decision.decide` for the arguments; `slowest` is the slowest worker of the first tier.
    """
    if record.ready:
        return READY
    if record.asked < 1:
        return NOT_READY
    seconds = slowest.speed_rank + slowest.held_up
    if slowest.round != round or slowest.ready:
        # It is about to start the next round. If the run is over, the time runs out.
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
    """The division of one job's workers into tiers and workers that are left out.

    Args:
        settings: of the job.
        workers: number of workers.

    Attributes:
        settings: as given.
        tiers: tier of each rank.
        left_out: ranks that are left out, never rank 0, which evaluates and writes the model.
        aside: ranks that rounds do not wait for, since an answer to them, until they report that
            rounds wait for them again.
        shares: rank → its share of the summed speed, if its speed is known.
    """

    def __init__(self, settings: TierSettings, workers: int) -> None:
        self.settings = settings
        self.tiers = list(settings.tiers or [0] * workers)
        self.left_out = set(settings.leave_out or ())
        self.aside: set[int] = set()
        self.shares: dict[int, float] = {}
        self._measured: set[int] = set()  # ranks that have been divided by their speed

    def update(self, records: Sequence[Record], absent: Collection[int]) -> None:
        """Divide the workers by their present speeds; `absent` are ranks that do not take part."""
        paces = {
            record.rank: record.capability for record in records if record.capability > 0 and record.rank not in absent
        }
        self.shares = shares(paces)
        if self.settings.leave_out is None and len(paces) == len(records) - len(absent):
            self.left_out = left_out(paces, self.left_out) - {0}
        if self.settings.tiers is None:
            participants = {rank: pace for rank, pace in paces.items() if rank not in self.left_out}
            before = {rank: self.tiers[rank] for rank in participants if rank in self._measured}
            for rank, tier in divide(participants, before).items():
                self.tiers[rank] = tier
            self._measured.update(record.rank for record in records if record.measured)

    def tier(self, rank: int, absent: Collection[int]) -> int:
        """Return the tier of a rank, counted from the first tier that still has workers."""
        present = {tier for other, tier in enumerate(self.tiers) if other not in absent and other not in self.left_out}
        return sum(1 for tier in present if tier < self.tiers[rank])

    def state(self) -> dict[str, Any]:
        """Return everything that affects later answers, for JSON."""
        return {
            "settings": self.settings.flat,
            "tiers": self.tiers,
            "left_out": sorted(self.left_out),
            "aside": sorted(self.aside),
            "measured": sorted(self._measured),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Division":
        """Return a division with the state that `state` has returned."""
        self = cls(TierSettings.of(state["settings"]), len(state["tiers"]))
        self.tiers, self.left_out = list(state["tiers"]), set(state["left_out"])
        self.aside, self._measured = set(state["aside"]), set(state["measured"])
        return self
