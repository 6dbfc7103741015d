"""Sync-Switch's requests over servers in memory, with a leader that dies at any moment."""

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from esync.exchange import WEIGHTS, Control, Payload, Result, Specification, Use
from esync.exchange.protocol import wire
from esync.exchange.protocol.client import ParameterServerExchange

from .memory_exchanges import MemoryExchanges, MemoryRun
from .store_checks import WORKERS
from .vectors import SIZES, sources, values

RATE = 0.25

#: Choices of a run without a death, about, and the most of one with a death.
LENGTH, MOST = 900, 30_000

#: Given how things stand and a source of chance, what the leader asks for with its next payload.
Requests = Callable[[Result, random.Random], dict[str, object]]


def switches_back_and_forth(result: Result, chance: random.Random) -> dict[str, object]:
    return {"switch": not result.synchronous} if chance.random() < 0.4 else {}


def excludes_a_worker(result: Result, chance: random.Random) -> dict[str, object]:
    return {"excluded": () if result.excluded else (2,)} if chance.random() < 0.4 else {}


class Run(MemoryRun):
    """A training whose leader asks for something new now and then; see `Requests`."""

    def __init__(self, requests: Requests, seed: int) -> None:
        super().__init__(Specification("momentum_sgd", True), seed, rounds=8, most=MOST)
        self._requests = requests

    def __str__(self) -> str:
        return self._requests.__name__

    def payload(self, exchange: ParameterServerExchange, result: Result) -> Payload:
        discard = bool(result.synchronous) and exchange.rank in result.excluded
        if discard:
            exchange.store.sleep(0.001)  # else time never passes, because there is always something that it can do
        # Of the workers whose commits are used at once, every one may ask for the way back to rounds.
        may_ask = exchange.rank == 0 or not result.synchronous
        asked: dict[str, Any] = self._requests(result, self.chance) if may_ask else {}
        sent = {WEIGHTS: np.ones(SIZES[WEIGHTS], np.float32)}
        use = Use.DISCARD if discard else Use.TOGETHER if result.synchronous else Use.AT_ONCE
        return Payload(sources(sent), 1, RATE, control=Control(use, **asked))

    def check(self) -> None:
        assert len({round_state.rounds_together for round_state in self.round_states}) == 1
        for bucket in self.layout.of(WEIGHTS):  # no commit is lost or used twice
            node, part = self.cluster.nodes[bucket.shard], slice(bucket.start, bucket.stop)
            state, used = node.endpoint.server.round_state, node.stored[self.layout.key(bucket)][wire.HEADER_ELEMENTS :]
            np.testing.assert_allclose(used, values(0)[WEIGHTS][part] - RATE * state.step, rtol=1e-5, atol=1e-5)
            unused = 0 if self._requests is switches_back_and_forth else math.inf  # what is discarded
            # The last ones come after the end, or are a dead worker's.
            assert 0 <= state.acknowledged.sum() - state.version <= 2 * WORKERS + unused


@pytest.mark.parametrize("requests", [switches_back_and_forth, excludes_a_worker])
@pytest.mark.parametrize("dies", [False, True])
def test_sync_switch_leader_that_dies_at_any_moment_leaves_servers_consistent(requests: Requests, dies: bool) -> None:
    for seed in range(20 if dies else 4):
        run = Run(requests, seed)
        if dies:
            run.cluster.at(run.chance.randrange(LENGTH), partial(run.replace, 0))
        run.finish()


def test_sync_switch_servers_agree_on_rounds_that_a_dead_leader_requested_from_one() -> None:
    side = MemoryExchanges(Specification("momentum_sgd", False), 2, np.zeros(8, np.float32), 2, 4)
    leader, other = side.workers
    side.round([other], [np.ones(8)], use=Use.AT_ONCE)
    leader.die(np.ones(8), before=1, use=Use.AT_ONCE, switch=True)
    assert [server.round_state.synchronous for server in side.servers] == [True, False]
    replacement = side.replace(0)
    side.round(
        [replacement], [np.ones(8)], use=Use.AT_ONCE
    )  # makes up for the commit that the second server has missed
    assert replacement.result.synchronous
    assert [server.round_state.synchronous for server in side.servers] == [True, False]
    side.round([replacement, other], [np.ones(8), np.ones(8)], use=Use.TOGETHER)
    assert [server.round_state.synchronous for server in side.servers] == [True, True]
    assert [server.round_state.rounds_together for server in side.servers] == [1, 1]
    assert replacement.weights.tobytes() == other.weights.tobytes() == side.weights().tobytes()


def test_sync_switch_servers_agree_on_excluded_workers() -> None:
    """The leader told only the first server before it died, and its replacement does not know."""
    side = MemoryExchanges(Specification("momentum_sgd", True), 3, np.zeros(8, np.float32), 2, 4)
    leader, other, slow = side.workers
    for worker in (other, slow):
        worker.send(np.ones(8), use=Use.TOGETHER)
    leader.die(np.ones(8), before=1, use=Use.TOGETHER, excluded=(2,))
    replacement = side.replace(0)
    replacement.send(np.ones(8), use=Use.TOGETHER)
    for worker in (other, slow, replacement):
        worker.fetch()
    assert [server.round_state.excluded.any() for server in side.servers] == [True, False]
    side.round([slow], [np.ones(8)], use=Use.DISCARD)
    side.round([replacement, other], [np.ones(8), np.ones(8)], use=Use.TOGETHER)
    assert [server.round_state.rounds_together for server in side.servers] == [2, 2]
    assert [server.round_state.excluded.tolist() for server in side.servers] == [[False, False, True]] * 2


def test_sync_switch_replacement_takes_part_in_the_round_before_its_exclusion() -> None:
    """Its slot's commit ended the round on the first server, which has excluded it since."""
    side = MemoryExchanges(Specification("momentum_sgd", True), 3, np.zeros(8, np.float32), 2, 4)
    leader, other, slow = side.workers
    leader.send(np.ones(8), use=Use.TOGETHER, excluded=(2,))
    other.send(np.ones(8), use=Use.TOGETHER)
    slow.die(np.ones(8), before=1, use=Use.TOGETHER)
    assert [server.round_state.rounds_together for server in side.servers] == [1, 0]
    replacement = side.replace(2)
    replacement.send(np.ones(8), use=Use.DISCARD if 2 in replacement.result.excluded else Use.TOGETHER)
    for worker in (leader, other, replacement):
        worker.fetch()
    assert replacement.result.excluded == (2,)
    assert [server.round_state.rounds_together for server in side.servers] == [1, 1]
    assert [server.round_state.excluded.tolist() for server in side.servers] == [[False, False, True]] * 2
