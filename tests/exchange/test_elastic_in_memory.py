"""Workers that servers go on without, each from a moment of its own on."""

import numpy as np
import pytest

from esync.exchange import SlotLostError, Specification

from .memory_exchanges import MemoryExchanges

#: Seconds of silence; nobody is dropped for that here.
LEASE = 1e6


def started(workers: int) -> MemoryExchanges:
    """Workers that have joined, and two servers."""
    return MemoryExchanges(Specification("sgd", True), workers, np.zeros(8, np.float32), 2, 4, lease=LEASE)


def test_who_has_lost_its_slot_does_not_end_the_run_with_its_goodbye() -> None:
    """One server has dropped it, the other has not, and nobody else is there."""
    side = started(2)
    slow = side.workers[0]
    side.drop(1)
    side.servers[0].drop(0)
    with pytest.raises(SlotLostError):
        side.round([slow], [np.ones(8)])
    slow.spawn(slow.exchange.close)
    side.cluster.run()
    assert not any(server.ledger.deserted for server in side.servers)
