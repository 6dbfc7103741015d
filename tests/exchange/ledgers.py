"""Ledgers for tests."""

import math

from esync.exchange.protocol import wire
from esync.exchange.protocol.round_state import Ledger, Limits


def make(slots: int = 2, synchronous: bool = True, staleness: float = math.inf, **limits: float) -> Ledger:
    """With all workers there, at second 0."""
    ledger = Ledger(slots, synchronous, Limits(**limits), staleness=staleness)
    for rank in range(slots):
        ledger.join(rank, 10 + rank, now=0.0)
    return ledger


def commit(ledger: Ledger, rank: int, now: float, sequence: int = 1, samples: int = 1) -> list[int]:
    """A commit, applied at once where it is due."""
    due = ledger.commit(wire.message(wire.COMMIT, rank=rank, sequence=sequence, samples=samples), now)
    if due:
        ledger.applied(due, now)
    return due
