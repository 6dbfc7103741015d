"""The decision of ESync, Algorithm 2 of the paper, with leases: READY or NOT-READY.

Pure functions; docs/internals/coordination.md derives the formulas.
"""

import math
from dataclasses import dataclass

from .. import config
from .records import Record


@dataclass(frozen=True, slots=True)
class ExchangeDecision:
    """The answer to a query.

    Attributes:
        ready: whether to exchange now; otherwise the worker continues training.
        lease: seconds after the answer in which the worker need not send a query; 0 if it is to send one
            after its next iteration.
        tier: tier of the worker (mode tiered): rounds wait for workers of tier 0 only.
        left_out: whether the worker is to send nothing for now (mode tiered).
        share: share of a worker that is left out in the speed of all; 0 while unknown.
    """

    ready: bool
    lease: float = 0.0
    tier: int = 0
    left_out: bool = False
    share: float = 0.0


GOLDEN = (math.sqrt(5) - 1) / 2
NOT_READY, READY = ExchangeDecision(False), ExchangeDecision(True)


def decide(
    slowest: Record, record: Record, round: int, slowest_iterations: int, epsilon: float, now: float
) -> ExchangeDecision:
    """Answer a worker that is in the job's round and has not got READY in it.

    Args:
        slowest: record of the slowest worker that takes part in the round.
        record: record of the querying worker.
        round: round of the job.
        slowest_iterations: local iterations of the slowest worker per round.
        epsilon: seconds.
        now: the coordinator's time, seconds.
    """
    begun = record.asked > 0  # nobody exchanges without an iteration
    if slowest.round != round:
        # The slowest worker is still taking over the model. If it is dead, another one has to
        # exchange for the servers to notice.
        silent = now - slowest.finished - (slowest_iterations + 1) * slowest.speed_rank
        return READY if begun and silent > config.RESET_PATIENCE else NOT_READY
    if slowest is record:
        return READY if begun and record.asked >= slowest_iterations else NOT_READY
    if slowest.ready:
        return READY if begun else NOT_READY
    done = slowest.asked if slowest.asked > 0 else 0
    iterations_left = slowest_iterations - done if done < slowest_iterations else 1
    rest_time = iterations_left * (slowest.speed_rank + slowest.held_up) - (now - slowest.finished)
    slack = rest_time - (record.capability + record.round_trip + epsilon)
    if slack < 0 and begun:
        return READY
    # No worker exchanges before the end of the slowest worker's current iteration, even if another one
    # becomes the slowest. A lease that ends before it need never be revoked.
    unavoidable = slowest.finished + slowest.shortest - now
    lease = lease_share(record.rank) * slack
    if unavoidable < lease:
        lease = unavoidable
    return ExchangeDecision(False, lease) if lease > 0 else NOT_READY


def lease_share(rank: int) -> float:
    """Return the share of the slack that a lease covers: between a quarter and a half.

    It differs from rank to rank. Workers of one kind, which begin a round together, would otherwise
    all ask in the same instant, again and again. Multiples of the golden ratio, modulo 1, are
    evenly spread however many there are.
    """
    return 0.5 - 0.25 * (rank * GOLDEN % 1.0)


def automatic_epsilon(record: Record) -> float:
    """Return the seconds that guard the decision about one worker where no number was given.

    They cover the usual fluctuations of its iteration and its round trip. They cost it that much
    computing time a round, so they are never more than a small share of its own iteration.
    """
    most = config.EPSILON_SHARE * record.capability
    fluctuates = record.jitter + record.round_trip_jitter
    return fluctuates if fluctuates < most else most
