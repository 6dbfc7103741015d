"""Sync-Switch's requests over servers in memory, with a leader that dies at any moment."""

import numpy as np

from esync.exchange import Specification

from .memory_exchanges import MemoryExchanges


def test_sync_switch_servers_agree_on_rounds_that_a_dead_leader_requested_from_one() -> None:
    side = MemoryExchanges(Specification("momentum_sgd", False), 2, np.zeros(8, np.float32), 2, 4)
    leader, other = side.workers
    side.round([other], together=False)
    leader.die(before=1, together=False, switch=True)
    assert side.states("synchronous") == [True, False]
    replacement = side.replace(0)
    side.round([replacement], together=False)  # makes up for the commit that the second server has missed
    assert replacement.result.synchronous
    assert side.states("synchronous") == [True, False]
    side.round([replacement, other], together=True)
    assert side.states("synchronous") == [True, True]
    assert side.states("rounds_together") == [1, 1]
    assert side.agrees_with(replacement, other)


def test_sync_switch_servers_agree_on_excluded_workers() -> None:
    """The leader told only the first server before it died, and its replacement does not know."""
    side = MemoryExchanges(Specification("momentum_sgd", True), 3, np.zeros(8, np.float32), 2, 4)
    leader, other, slow = side.workers
    for worker in (other, slow):
        worker.send(together=True)
    leader.die(before=1, together=True, excluded=(2,))
    replacement = side.replace(0)
    replacement.send(together=True)
    for worker in (other, slow, replacement):
        worker.fetch()
    assert [server.round_state.excluded.any() for server in side.servers] == [True, False]
    side.round([slow], together=True, discard=True)
    side.round([replacement, other], together=True)
    assert side.states("rounds_together") == [2, 2]
    assert side.states("excluded") == [[False, False, True]] * 2


def test_sync_switch_replacement_takes_part_in_the_round_before_its_exclusion() -> None:
    """Its slot's commit ended the round on the first server, which has excluded it since."""
    side = MemoryExchanges(Specification("momentum_sgd", True), 3, np.zeros(8, np.float32), 2, 4)
    leader, other, slow = side.workers
    leader.send(together=True, excluded=(2,))
    other.send(together=True)
    slow.die(before=1, together=True)
    assert side.states("rounds_together") == [1, 0]
    replacement = side.replace(2)
    replacement.send(together=True, discard=2 in replacement.result.excluded)
    for worker in (leader, other, replacement):
        worker.fetch()
    assert replacement.result.excluded == (2,)
    assert side.states("rounds_together") == [1, 1]
    assert side.states("excluded") == [[False, False, True]] * 2
