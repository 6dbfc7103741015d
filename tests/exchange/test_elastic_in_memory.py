"""Workers that die where servers go on without them, each server from its own moment."""

import numpy as np
import pytest

from esync.exchange import SlotLostError, Specification
from esync.exchange.protocol.round_state import Limits

from .memory_exchanges import MemoryExchanges

#: Seconds of silence; nobody is dropped for that here.
LEASE = 1e6


# --- chosen moments -------------------------------------------------------------------------------


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
        side.round([slow], [np.ones(8)])
    slow.spawn(slow.exchange.close)
    side.cluster.run()
    assert not any(server.round_state.can_exit for server in side.servers)


def test_elastic_replacements_end_a_round_in_which_all_others_died() -> None:
    """Commits that reached one server only have ended the round there; nobody is left to repeat
    them.
    """
    side = started(2)
    for worker in side.workers:
        worker.die(np.ones(8), before=1)
    side.drop(0)
    side.drop(1)
    assert [server.round_state.round for server in side.servers] == [1, 0]
    replacements = [side.replace(rank) for rank in (0, 1)]
    for _ in range(2):
        side.round(replacements, [np.ones(8), np.ones(8)])
        assert replacements[0].weights.tobytes() == replacements[1].weights.tobytes() == side.weights().tobytes()
    assert [server.round_state.round for server in side.servers] == [2, 2]
    assert (side.weights() == -2).all()


def test_elastic_replacement_between_diverged_servers_is_waited_for_once() -> None:
    """The others wait on the second server, for the replacement or for the end of its slot."""
    side = started(2)
    other, dead = side.workers
    side.cluster.kill(dead.rank)
    other.send(np.ones(8))
    side.servers[0].drop(1)
    assert [server.round_state.round for server in side.servers] == [1, 0]
    replacement = side.replace(1)
    replacement.send(np.ones(8))
    for worker in (other, replacement):
        worker.fetch()
    assert [server.round_state.round for server in side.servers] == [1, 1]
    side.round([other, replacement], [np.ones(8), np.ones(8)])
    assert other.weights.tobytes() == replacement.weights.tobytes() == side.weights().tobytes()
    assert [server.round_state.round for server in side.servers] == [2, 2]


def test_elastic_servers_all_train_to_the_end_set_by_the_first() -> None:
    """The second server has counted a commit that the first has not, so its limit would come
    sooner.
    """
    side = MemoryExchanges(
        Specification("sgd", True), 2, np.zeros(8, np.float32), 2, 4, lease=LEASE, limits=Limits(samples=3)
    )
    one, dead = side.workers
    one.send(np.ones(8))
    side.servers[0].drop(1)
    side.cluster.stopped.add(0)
    dead.send(np.ones(8))
    side.cluster.kill(1)
    side.cluster.stopped.clear()
    one.fetch()
    side.servers[1].drop(1)
    for _ in range(2):
        side.round([one], [np.ones(8)])
    assert [server.round_state.samples for server in side.servers] == [3, 4]
    assert side.servers[0].round_state.finished
    assert (side.weights() == -3).all()
