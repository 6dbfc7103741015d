"""Workers killed at random moments where servers go on without them, each server from its own
moment.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from esync.exchange import Payload, Result, SlotLostError, Specification
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.round_state import Limits

from .memory_exchanges import MemoryExchanges, MemoryRun
from .store_checks import ROUNDS, SERVERS, SPECIFICATIONS, WORKERS, payload_of

#: Seconds of silence; nobody is dropped for that here.
LEASE = 1e6
#: Choices of a run without a death, about.
LENGTH = 500


class Run(MemoryRun):
    """A training of a kind of `SPECIFICATIONS`, in which servers drop dead workers.

    Every server does so sooner or later.
    """

    def __init__(self, kind: str, seed: int, **options: Any) -> None:
        super().__init__(SPECIFICATIONS[kind], seed, lease=LEASE, **options)
        self.kind = kind
        self.coming = 0  # replacements that have not been started yet

    def __str__(self) -> str:
        return self.kind

    def payload(self, exchange: ParameterServerExchange, result: Result) -> Payload:
        return payload_of(self.kind, exchange.sequence, exchange.rank)

    def die(self, ranks: Sequence[int], first: int) -> None:
        """Have these workers killed, one after the other.

        This also plans when servers notice it, and when others take their places.
        """
        for rank in ranks:
            dead = first + self.chance.randrange(20)
            self.cluster.at(dead, partial(self.kill, rank))
            self.cluster.at(dead + self.chance.randrange(1, 400), partial(self.start_another, rank))
            for server in range(SERVERS):
                self.cluster.at(dead + self.chance.randrange(1, 300), partial(self.drop, rank, server))
        self.coming = len(ranks)
        self.cluster.spawn("launcher", 0, self.launch)

    def launch(self) -> None:
        """Let time pass until all replacements have been started, whoever is there."""
        while self.coming:
            self.cluster.wait(lambda: False, self.cluster.now + 1e-3)

    def start_another(self, rank: int) -> None:
        """Start another worker in the place of one that was killed."""
        self.cluster.start(rank, self.train)
        self.coming -= 1

    def drop(self, rank: int, server: int) -> None:
        """Have a server drop a worker, unless its replacement is there, or has been and is done."""
        if self.round_states[server].nonce[rank] <= WORKERS:
            self.cluster.nodes[server].endpoint.server.drop(rank)

    def check(self) -> None:
        assert len({model.weights.tobytes() for model in self.models.values()}) == 1
        assert [round_state.round for round_state in self.round_states] == [ROUNDS] * SERVERS


@pytest.mark.parametrize("kind", [kind for kind, asked in SPECIFICATIONS.items() if asked.synchronous])
@pytest.mark.parametrize(("hosts", "many"), [([], 1), ([], WORKERS), ([(0, 1, 2)], 1), ([(0, 1, 2)], 2)])
def test_elastic_workers_that_die_at_any_moment_are_dropped_and_replaced(
    kind: str, hosts: Sequence[Sequence[int]], many: int
) -> None:
    for seed in range(8):
        run = Run(kind, seed, hosts=hosts)
        first = run.chance.randrange(150, LENGTH)  # nobody may be left out before all have begun
        run.die(run.chance.sample(range(WORKERS), many), first)
        run.finish()


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
