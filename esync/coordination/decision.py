"""The decision of ESync, Algorithm 2 of the paper, with leases: READY or NOT-READY.

Pure functions; docs/internals/coordination.md derives the formulas.
"""

import math
from dataclasses import dataclass

from .. import config
from .records import Record


@dataclass(frozen=True, slots=True)
class ExchangeDecision:
    """The answer to a question.

    Attributes:
        ready: True: go and exchange; False: train on.
        lease: seconds after the answer in which the worker need not ask again; 0: it asks again
            after its next iteration.
        tier: of the worker (mode tiered); rounds wait for tier 0 only.
        left_out: whether the worker sends nothing for now (mode tiered).
        share: of a worker that is left out, in the summed speed of all; 0: not known.
        iterations: of the slowest worker in this round, if the state server chooses settings; else 0.
        compression: of this round's exchange, if the state server chooses it; else "".
    """

    ready: bool
    lease: float = 0.0
    tier: int = 0
    left_out: bool = False
    share: float = 0.0
    iterations: int = 0
    compression: str = ""


GOLDEN = (math.sqrt(5) - 1) / 2
NOT_READY, READY = ExchangeDecision(False), ExchangeDecision(True)


def decide(
    slowest: Record, record: Record, round: int, slowest_iterations: int, epsilon: float, now: float
) -> ExchangeDecision:
    """Answer a worker that is in the job's round, and has not got READY in it.

    Args:
        slowest: record of the slowest worker that takes part in the round.
        record: record of the worker that asks.
        round: of the job.
        slowest_iterations: local iterations of the slowest worker per round.
        epsilon: seconds.
        now: the coordinator's time, seconds.
    """
    begun = record.asked > 0  # no worker exchanges without an iteration
    if slowest.round != round:
        # The slowest worker is still receiving the model. If it is dead, the servers notice only
        # when another worker exchanges.
        silent = now - slowest.finished - (slowest_iterations + 1) * slowest.speed_rank
        return READY if begun and silent > config.RESET_PATIENCE else NOT_READY
    if slowest is record:
        return READY if begun and record.asked >= slowest_iterations else NOT_READY
    if slowest.ready:
        return READY if begun else NOT_READY
    iterations_left = max(1, slowest_iterations - max(slowest.asked, 0))
    rest_time = iterations_left * (slowest.speed_rank + slowest.held_up) - (now - slowest.finished)
    slack = rest_time - (record.capability + record.round_trip + epsilon)
    if slack < 0 and begun:
        return READY
    # No worker can exchange before the slowest one's current iteration has ended, even if another
    # worker is the slowest by then. So a lease that ends before that never has to be revoked.
    unavoidable = slowest.finished + slowest.shortest - now
    lease = min(lease_share(record.rank) * slack, unavoidable)
    return ExchangeDecision(False, lease) if lease > 0 else NOT_READY


def lease_share(rank: int) -> float:
    """Return the share of the slack that a lease covers: between a quarter and a half.

    It depends on the rank; otherwise equal workers, which start a round together, would always ask
    at the same time. Multiples of the golden ratio, modulo 1, are evenly spread for any number.
    """
    return 0.5 - 0.25 * (rank * GOLDEN % 1.0)


def automatic_epsilon(record: Record) -> float:
    """Return the epsilon of one worker, in seconds, for jobs without a given one.

    It covers the usual fluctuations of the worker's iteration and round trip. As it costs that much
    computing time per round, it is limited to a small share of an iteration.
    """
    return min(config.EPSILON_SHARE * record.capability, record.jitter + record.round_trip_jitter)
