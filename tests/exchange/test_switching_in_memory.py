"""Sync-Switch's requests over servers in memory, with a leader that dies at any moment."""

import numpy as np

from esync.exchange import Specification, Use

from ..support.memory_exchanges import MemoryExchanges


def test_sync_switch_servers_agree_on_rounds_that_a_dead_leader_requested_from_one() -> None:
    side = MemoryExchanges(Specification("momentum_sgd", False), 2, np.zeros(8, np.float32), 2, 4)
    leader, other = side.workers
    side.round([other], use=Use.AT_ONCE)
    leader.die(before=1, use=Use.AT_ONCE, switch=True)
    assert side.states("synchronous") == [True, False]
    replacement = side.replace(0)
    side.round([replacement], use=Use.AT_ONCE)  # makes up for the commit that the second server has missed
    assert replacement.result.synchronous
    assert side.states("synchronous") == [True, False]
    side.round([replacement, other], use=Use.TOGETHER)
    assert side.states("synchronous") == [True, True]
    assert side.states("rounds_together") == [1, 1]
    assert side.agrees_with(replacement, other)


def test_sync_switch_servers_agree_on_excluded_workers() -> None:
    """The leader told only the first server before it died, and its replacement does not know."""
    side = MemoryExchanges(Specification("momentum_sgd", True), 3, np.zeros(8, np.float32), 2, 4)
    leader, other, slow = side.workers
    for worker in (other, slow):
        worker.send(use=Use.TOGETHER)
    leader.die(before=1, use=Use.TOGETHER, excluded=(2,))
    replacement = side.replace(0)
    replacement.send(use=Use.TOGETHER)
    for worker in (other, slow, replacement):
        worker.fetch()
    assert [server.round_state.excluded.any() for server in side.servers] == [True, False]
    side.round([slow], use=Use.DISCARD)
    side.round([replacement, other], use=Use.TOGETHER)
    assert side.states("rounds_together") == [2, 2]
    assert side.states("excluded") == [[False, False, True]] * 2


def test_sync_switch_replacement_takes_part_in_the_round_before_its_exclusion() -> None:
    """Its slot's commit ended the round on the first server, which has excluded it since."""
    side = MemoryExchanges(Specification("momentum_sgd", True), 3, np.zeros(8, np.float32), 2, 4)
    leader, other, slow = side.workers
    leader.send(use=Use.TOGETHER, excluded=(2,))
    other.send(use=Use.TOGETHER)
    slow.die(before=1, use=Use.TOGETHER)
    assert side.states("rounds_together") == [1, 0]
    replacement = side.replace(2)
    replacement.send(use=Use.DISCARD if 2 in replacement.result.excluded else Use.TOGETHER)
    for worker in (leader, other, replacement):
        worker.fetch()
    assert replacement.result.excluded == (2,)
    assert side.states("rounds_together") == [1, 1]
    assert side.states("excluded") == [[False, False, True]] * 2
