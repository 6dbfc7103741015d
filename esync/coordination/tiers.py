"""Tiers: which workers rounds wait for, and which workers are left out.

The workers of a tier have similar speeds. Rounds wait for the first tier only; the other workers
contribute to a round when they have finished their iterations. docs/internals/coordination.md
explains the rules.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from .. import config
from .automatic_settings import AutomaticSettings
from .decision import NOT_READY, READY, ExchangeDecision, lease_share
from .records import Record
from .tier_settings import TierSettings

AUTO, NONE = "auto", "none"


def divide(paces: Mapping[int, float], before: Mapping[int, int], slowest: float = 0.0) -> dict[int, int]:
    """Divide workers into tiers by their speeds.

    Each tier starts with the fastest remaining worker, and includes workers whose iterations are at
    most config.ROUND_ITERATIONS times as long; the first one those up to a chosen time, if there is
    one. A worker changes its tier only if it is beyond that limit by the share
    config.TIER_HYSTERESIS, which prevents frequent changes.

    Args:
        paces: rank → seconds of an iteration, above 0.
        before: rank → its present tier, if it has one.
        slowest: seconds of an iteration up to which workers are in the first tier; 0: not chosen.

    Returns:
        Rank → tier, from 0.
    """
    tiers: dict[int, int] = {}
    rest = sorted(paces, key=lambda rank: (paces[rank], rank))
    tier = 0
    while rest:
        chosen = 0.0 if tier else slowest
        limit = chosen or config.ROUND_ITERATIONS * paces[rest[0]]
        slower: list[int] = []
        for rank in rest:
            if chosen:
                # The next slower workers are further away; the fastest one may have slowed down since the choice.
                bound = max(limit * (1 + config.TIER_HYSTERESIS / 2), paces[rest[0]])
            elif rank not in before:
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
    """Return the workers during whose iteration the workers that are left do too many batches.

    More than config.NOISE_SCALE batches are too many (`automatic_settings` says why), which is a
    share of their summed speed below 1/NOISE_SCALE. Workers are left out one by one, the slowest one
    first, so that of many workers alike NOISE_SCALE are left. A worker that is left out returns when
    its share exceeds that limit by config.LEAVE_OUT_HYSTERESIS.

    Args:
        paces: rank → seconds of an iteration, above 0.
        before: ranks that are left out at present.
    """
    minimum = 1 / config.NOISE_SCALE
    returns = minimum * (1 + config.LEAVE_OUT_HYSTERESIS)
    total, out = sum(1 / pace for pace in paces.values()), set[int]()
    # Those that are left out come first, or workers alike would take turns.
    for rank in sorted(paces, key=lambda rank: (rank in before, paces[rank], rank), reverse=True):
        if 1 / paces[rank] < (returns if rank in before else minimum) * total:
            out.add(rank)
            total -= 1 / paces[rank]
    return out


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
        rest_time = max(1, slowest_iterations - max(slowest.asked, 0)) * seconds
    rest_time -= now - slowest.finished
    slack = rest_time - (record.capability + record.round_trip + epsilon)
    if slack < 0:
        return READY
    # Its exchange may have been a slow one for once: ask again within a round.
    lease = lease_share(record.rank) * min(slack, slowest_iterations * seconds)
    return ExchangeDecision(False, lease) if slack < math.inf else NOT_READY


@dataclass
class Division:
    """The division of one job's workers into tiers and workers that are left out.

    Attributes:
        settings: of the job.
        tiers: tier of each rank.
        left_out: ranks that are left out, never rank 0, which evaluates and writes the model.
        aside: ranks that rounds do not wait for, since an answer to them, until they report that
            rounds wait for them again.
        shares: rank → its share of the summed speed, if its speed is known.
        measured: ranks that have been divided by their speed.
    """

    settings: TierSettings
    tiers: list[int]
    left_out: set[int]
    aside: set[int] = field(default_factory=set)
    shares: dict[int, float] = field(default_factory=dict)
    measured: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, settings: TierSettings, workers: int) -> "Division":
        """Return the division of so many workers before any speed is known."""
        return cls(settings, list(settings.tiers or [0] * workers), set(settings.leave_out or ()))

    def update(self, records: Sequence[Record], absent: Collection[int], chosen: AutomaticSettings | None) -> None:
        """Divide the workers by their present speeds.

        Args:
            records: of all workers.
            absent: ranks that do not take part.
            chosen: the settings of the present round, where they are chosen.
        """
        paces = {
            record.rank: record.capability for record in records if record.capability > 0 and record.rank not in absent
        }
        self.shares = shares(paces)
        if self.settings.leave_out is None and len(paces) == len(records) - len(absent):
            self.left_out = left_out(paces, self.left_out) - {0}
        if self.settings.tiers is None:
            participants = {rank: pace for rank, pace in paces.items() if rank not in self.left_out}
            before = {rank: self.tiers[rank] for rank in participants if rank in self.measured}
            slowest = chosen.slowest if chosen is not None else 0.0
            for rank, tier in divide(participants, before, slowest).items():
                self.tiers[rank] = tier
            if self.settings.leave_out is None and chosen is not None and slowest:
                # Their exchanges would lengthen those of the workers that rounds wait for.
                self.left_out |= {
                    rank
                    for rank, pace in participants.items()
                    if rank and self.tiers[rank] and (chosen.alone or pace <= chosen.seconds)
                }
            self.measured.update(record.rank for record in records if record.measured)

    def tier(self, rank: int, absent: Collection[int]) -> int:
        """Return the tier of a rank, counted from the first tier that still has workers."""
        present = {tier for other, tier in enumerate(self.tiers) if other not in absent and other not in self.left_out}
        return sum(1 for tier in present if tier < self.tiers[rank])
