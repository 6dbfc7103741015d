"""Sync-Switch's requests over servers in memory, with a leader that dies at any moment."""

import numpy as np

from esync.exchange import Specification

from .memory_exchanges import MemoryExchanges


def test_sync_switch_servers_agree_on_rounds_that_a_dead_leader_requested_from_one() -> None:
    side = MemoryExchanges(Specification("momentum_sgd", False), 2, np.zeros(8, np.float32), 2, 4)
    leader, other = side.workers
    side.round([other], [np.ones(8)], together=False)
    leader.die(np.ones(8), before=1, together=False, switch=True)
    assert [server.round_state.synchronous for server in side.servers] == [True, False]
    replacement = side.replace(0)
    side.round([replacement], [np.ones(8)], together=False)  # makes up for the commit that the second server has missed
    assert replacement.result.synchronous
    assert [server.round_state.synchronous for server in side.servers] == [True, False]
    side.round([replacement, other], [np.ones(8), np.ones(8)], together=True)
    assert [server.round_state.synchronous for server in side.servers] == [True, True]
    assert [server.round_state.rounds_together for server in side.servers] == [1, 1]
    assert replacement.weights.tobytes() == other.weights.tobytes() == side.weights().tobytes()


def test_sync_switch_servers_agree_on_excluded_workers() -> None:
    """The leader told only the first server before it died, and its replacement does not know."""
    side = MemoryExchanges(Specification("momentum_sgd", True), 3, np.zeros(8, np.float32), 2, 4)
    leader, other, slow = side.workers
    for worker in (other, slow):
        worker.send(np.ones(8), together=True)
    leader.die(np.ones(8), before=1, together=True, excluded=(2,))
    replacement = side.replace(0)
    replacement.send(np.ones(8), together=True)
    for worker in (other, slow, replacement):
        worker.fetch()
    assert [server.round_state.excluded.any() for server in side.servers] == [True, False]
    side.round([slow], [np.ones(8)], together=True, discard=True)
    side.round([replacement, other], [np.ones(8), np.ones(8)], together=True)
    assert [server.round_state.rounds_together for server in side.servers] == [2, 2]
    assert [server.round_state.excluded.tolist() for server in side.servers] == [[False, False, True]] * 2


def test_sync_switch_replacement_takes_part_in_the_round_before_its_exclusion() -> None:
    """Its slot's commit ended the round on the first server, which has excluded it since."""
    side = MemoryExchanges(Specification("momentum_sgd", True), 3, np.zeros(8, np.float32), 2, 4)
    leader, other, slow = side.workers
    leader.send(np.ones(8), together=True, excluded=(2,))
    other.send(np.ones(8), together=True)
    slow.die(np.ones(8), before=1, together=True)
    assert [server.round_state.rounds_together for server in side.servers] == [1, 0]
    replacement = side.replace(2)
    replacement.send(np.ones(8), together=True, discard=2 in replacement.result.excluded)
    for worker in (leader, other, replacement):
        worker.fetch()
    assert replacement.result.excluded == (2,)
    assert [server.round_state.rounds_together for server in side.servers] == [1, 1]
    assert [server.round_state.excluded.tolist() for server in side.servers] == [[False, False, True]] * 2
