"""Ledgers for tests."""

import math

from esync.exchange.protocol import wire
from esync.exchange.protocol.round_state import Limits, RoundState


def make(slots: int = 2, synchronous: bool = True, staleness: float = math.inf, **limits: float) -> RoundState:
    """With all workers there, at second 0."""
    round_state = RoundState(slots, synchronous, Limits(**limits), staleness=staleness)
    for rank in range(slots):
        round_state.join(rank, 10 + rank, now=0.0)
    return round_state


def commit(
    round_state: RoundState, rank: int, now: float = 1.0, sequence: int = 1, samples: int = 1, **fields: object
) -> list[int]:
    """A commit, applied at once where it is due."""
    message = wire.message(wire.COMMIT, rank=rank, sequence=sequence, samples=samples, **fields)
    due = round_state.commit(message, now)
    if due:
        round_state.applied(due, now)
    return due
