"""Workers that die where servers go on without them, each server from its own moment."""

import numpy as np
import pytest

from esync.exchange import SlotLostError, Specification
from esync.exchange.protocol.round_state import Limits

from ..support.memory_exchanges import MemoryExchanges

#: Seconds of silence; nobody is dropped for that here.
LEASE = 1e6


def started(workers: int) -> MemoryExchanges:
    """Workers that have joined, and two servers."""
    return MemoryExchanges(Specification("sgd", True), workers, np.zeros(8, np.float32), 2, 4, lease=LEASE)


def test_elastic_worker_dropped_by_one_server_does_not_end_the_run_by_leaving() -> None:
    """One of two servers has dropped it, and no other worker is there."""
    side = started(2)
    slow = side.workers[0]
    side.drop(1)
    side.servers[0].drop(0)
    with pytest.raises(SlotLostError):
        side.round([slow])
    slow.spawn(slow.exchange.close)
    side.cluster.run()
    assert not any(server.round_state.can_exit for server in side.servers)


def test_elastic_replacements_end_a_round_in_which_all_others_died() -> None:
    """Commits that reached one server only have ended the round there; nobody is left to repeat
    them.
    """
    side = started(2)
    for worker in side.workers:
        worker.die(before=1)
    side.drop(0)
    side.drop(1)
    assert side.states("round") == [1, 0]
    replacements = [side.replace(rank) for rank in (0, 1)]
    for _ in range(2):
        side.round(replacements)
        assert side.agrees_with(*replacements)
    assert side.states("round") == [2, 2]
    assert (side.weights() == -2).all()


def test_elastic_replacement_between_diverged_servers_is_waited_for_once() -> None:
    """The others wait on the second server, for the replacement or for the end of its slot."""
    side = started(2)
    other, dead = side.workers
    side.cluster.kill(dead.rank)
    other.send()
    side.servers[0].drop(1)
    assert side.states("round") == [1, 0]
    replacement = side.replace(1)
    replacement.send()
    for worker in (other, replacement):
        worker.fetch()
    assert side.states("round") == [1, 1]
    side.round([other, replacement])
    assert side.agrees_with(other, replacement)
    assert side.states("round") == [2, 2]


def test_elastic_servers_all_train_to_the_end_set_by_the_first() -> None:
    """The second server has counted a commit that the first has not, so its limit would come
    sooner.
    """
    side = MemoryExchanges(
        Specification("sgd", True), 2, np.zeros(8, np.float32), 2, 4, lease=LEASE, limits=Limits(samples=3)
    )
    one, dead = side.workers
    one.send()
    side.servers[0].drop(1)
    side.cluster.stopped.add(0)
    dead.send()
    side.cluster.kill(1)
    side.cluster.stopped.clear()
    one.fetch()
    side.servers[1].drop(1)
    for _ in range(2):
        side.round([one])
    assert side.states("samples") == [3, 4]
    assert side.servers[0].round_state.finished
    assert (side.weights() == -3).all()
