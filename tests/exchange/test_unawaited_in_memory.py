"""Workers that rounds do not wait for, over several servers in memory, in any order of events."""

from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
import pytest

from esync.exchange import WEIGHTS, Control, Payload, Result, Specification, Use
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.round_state import RoundState

from .memory_exchanges import MemoryExchanges, MemoryRun
from .store_checks import SERVERS, WORKERS
from .vectors import SIZES, sources

#: Choices of a run without a death, about, and the most of one with a death.
LENGTH, MOST = 900, 60_000
ROUNDS = 12
SLOW = WORKERS - 1


class Run(MemoryRun):
    """A training whose last worker steps aside, sends unawaited updates, and comes back."""

    def __init__(self, seed: int, returns: bool, slow: int = SLOW, **options: Any) -> None:
        super().__init__(Specification("add_mean_update", True), seed, rounds=ROUNDS, most=MOST, **options)
        self._returns, self._slow = returns, slow
        self.used: dict[int, dict[int, list[int]]] = defaultdict(dict)  # round → server → ranks

    def __str__(self) -> str:
        return "returns" if self._returns else "stays aside"

    def payload(self, exchange: ParameterServerExchange, result: Result) -> Payload:
        for server, round_state in enumerate(self.round_states):
            self._watch(server, round_state)
        slow = exchange.rank == self._slow
        if slow and self._slow not in result.aside:
            exchange.step_aside()
        back = slow and self._returns and self.chance.random() < 0.5
        update = np.full(SIZES[WEIGHTS], 2.0**exchange.rank, np.float32)
        use = Use.BACK if back else Use.UNAWAITED if slow else Use.AS_AGREED
        return Payload(sources({WEIGHTS: update}), 1, 1.0, control=Control(use))

    def _watch(self, server: int, round_state: RoundState) -> None:
        if "applied" in vars(round_state):
            return
        applied = round_state.applied

        def noted(ranks: list[int], now: float) -> None:
            applied(ranks, now)
            self.used[round_state.rounds_together][server] = ranks

        round_state.applied = noted  # type: ignore[method-assign]

    def check(self) -> None:
        assert [round_state.rounds_together for round_state in self.round_states] == [ROUNDS] * SERVERS


def slow_rounds(run: Run) -> list[int]:
    return [round_ for round_, used in run.used.items() if any(SLOW in ranks for ranks in used.values())]


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("hosts", [(), (range(WORKERS),)])
def test_unawaited_commits_are_used_in_the_same_round_by_all_servers(returns: bool, hosts: Any) -> None:
    taken_in = 0
    for seed in range(6):
        run = Run(seed, returns, hosts=[tuple(host) for host in hosts])
        run.finish()
        for used in run.used.values():
            assert len(set(map(tuple, used.values()))) == 1
        taken_in += len(slow_rounds(run))
        assert len({tuple(np.unique(model.weights)) for model in run.models.values()}) == 1
    assert taken_in > 6  # more than one in each run


@pytest.mark.parametrize(("dying", "slow"), [(0, 0), (1, 0), (0, SLOW), (SLOW, SLOW)])
@pytest.mark.parametrize("returns", [False, True])
def test_unawaited_run_goes_on_when_a_worker_is_replaced_at_any_moment(dying: int, slow: int, returns: bool) -> None:
    for seed in range(6):
        run = Run(seed, returns, slow)
        run.cluster.at(run.chance.randrange(LENGTH), partial(run.replace, dying))
        run.finish()


def side(codec: str = "none", workers: int = 3) -> MemoryExchanges:
    specification = Specification("add_mean_update", True, compression=codec, tensors=[8], weighting="samples")
    return MemoryExchanges(specification, workers, np.zeros(8, np.float32), 2, 4)


@pytest.mark.parametrize("codec", ["none", "fp16", "2bit"])
def test_unawaited_update_is_added_when_it_comes_and_its_worker_catches_up(codec: str) -> None:
    cluster = side(codec)
    fast, other, slow = cluster.workers
    slow.spawn(slow.exchange.step_aside)
    for _ in range(3):
        cluster.round([fast, other], [np.ones(8), np.ones(8)])
    assert (fast.result.round, fast.result.aside) == (3, (2,))
    slow.send(np.full(8, 4.0), use=Use.UNAWAITED)
    cluster.round([fast, other], [np.ones(8), np.ones(8)])
    slow.fetch()
    assert (slow.result.round, slow.result.used) == (4, True)
    assert slow.weights.tobytes() == fast.weights.tobytes() == cluster.weights().tobytes()
    if codec in ("none", "fp16"):
        np.testing.assert_array_equal(fast.weights, np.full(8, 3 + 6 / 3, np.float32))
    slow.send(np.full(8, 1.0), use=Use.BACK)
    cluster.round([fast, other], [np.ones(8), np.ones(8)])
    slow.fetch()
    for worker in (fast, other):
        worker.send(np.ones(8))
    assert [server.round_state.rounds_together for server in cluster.servers] == [5, 5]  # they wait for it again
    slow.send(np.ones(8))
    for worker in (fast, other, slow):
        worker.fetch()
    assert slow.result.round == 6
    assert slow.weights.tobytes() == fast.weights.tobytes()


def test_resting_worker_takes_over_the_model_without_sending_anything() -> None:
    cluster = side("fp16")
    fast, other, slow = cluster.workers
    slow.spawn(lambda: slow.exchange.step_aside(resting=True))
    cluster.round([fast, other], [np.ones(8), np.ones(8)])
    assert fast.result.resting == other.result.resting == (2,)
    slow.before_sending(lambda server, arrays, message: _nothing(arrays))
    payload = Payload({}, 0, 1.0, wanted={WEIGHTS}, control=Control(Use.DISCARD))
    slow.spawn(lambda: slow.exchange.start(payload, slow).wait())
    cluster.cluster.run()
    assert slow.weights.tobytes() == fast.weights.tobytes()


def _nothing(arrays: list[np.ndarray]) -> None:
    assert not arrays


@pytest.mark.parametrize("resting", [False, True])
def test_rounds_go_on_with_those_aside_when_all_others_are_gone(resting: bool) -> None:
    cluster = side()
    _, other, slow = cluster.workers
    slow.spawn(slow.exchange.step_aside)
    other.spawn(lambda: other.exchange.step_aside(resting=resting))
    cluster.cluster.run()
    slow.send(np.ones(8), use=Use.UNAWAITED)
    cluster.drop(0)
    if not resting:  # it is the first of those aside
        other.send(np.ones(8), use=Use.UNAWAITED)
        other.fetch()
        slow.send(np.ones(8), use=Use.UNAWAITED) if slow.result.round == 1 else None
    assert [server.round_state.rounds_together for server in cluster.servers] == [1, 1]
