"""The exchange over collectives in memory, with the workers as threads of this process."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from esync import config
from esync.exchange import STATISTICS, WEIGHTS, ExchangeError, JobAbortedError, Payload, Specification
from esync.exchange.collectives.engine import CollectiveEngine
from esync.exchange.collectives.memory import MemoryNetwork
from esync.exchange.collectives.worker_exchange import CollectiveExchange
from esync.exchange.protocol.resume_negotiation import Offer, Offers, ResumeState, RunProgress
from esync.exchange.protocol.round_state import Limits
from esync.rules import Step, momentum_sgd, sgd
from esync.runtime.watchdog import WaitTimeoutError, Watchdog

from ..support.vectors import Held, sources

SIZES = {WEIGHTS: 23, STATISTICS: 5}


def noise(*seed: int, size: int = SIZES[WEIGHTS]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def run(workers: int, body: Callable[[CollectiveExchange], Any], name: str = "ring", **specification: Any) -> list[Any]:
    """What `body` returns, or raises, on each of the workers."""
    network = MemoryNetwork(workers)

    def work(rank: int) -> Any:
        terms = {"rule": "sgd", "synchronous": True, **specification}
        try:
            transport = network.transports[rank]
            engine = CollectiveEngine(name, transport)
            return body(CollectiveExchange(Specification(**terms), engine, Watchdog(), 20, 20))
        except Exception as error:
            return error

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, range(workers), timeout=60))


def vectors_of(*seed: int) -> dict[str, np.ndarray]:
    return {WEIGHTS: noise(*seed), STATISTICS: noise(*seed, 1, size=SIZES[STATISTICS])}


def met(
    exchange: CollectiveExchange, limits: Limits | None = None, offers: Offers | None = None, **agreed: Any
) -> Held:
    """A worker that has joined and has the common model."""
    exchange.join(SIZES, limits or Limits(), agreed, *([offers] if offers else []))
    if exchange.resume_at >= 0:
        progress = RunProgress(7, 21, 100, 5.0, 7) if exchange.rank == 0 else None
        state = [noise(99)] if exchange.rank == 0 else []
        exchange.resume(ResumeState(7 if exchange.rank == 0 else 0, progress, state))
    model = Held(SIZES)
    exchange.begin(sources(vectors_of(exchange.rank)), model)
    return model


def payload(rank: int, number: int, **terms: Any) -> Payload:
    return Payload(sources(vectors_of(rank, number, 2)), 10 + rank, **{"learning_rate": 0.1, **terms})


def done_in_time(pending: Any, meanwhile: Callable[[], object] = lambda: None) -> bool:
    end = time.monotonic() + 20
    while not pending.done() and time.monotonic() < end:
        meanwhile()
        time.sleep(0.001)
    return bool(pending.done())


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "COLLECTIVE_BUCKET", 16)
    monkeypatch.setattr(config, "COLLECTIVE_FAREWELL", 0.5)


def train(exchange: CollectiveExchange, rounds: int = 1, **terms: Any) -> Any:
    """What a worker does that exchanges so many times: its model, the results, and the rule's state."""
    model, results = met(exchange, Limits(rounds=rounds)), []
    while not results or not results[-1].finished:
        number = len(results) + 1
        results.append(exchange.start(payload(exchange.rank, number, **terms), model).wait())
    state = exchange.rule_state()
    exchange.close()
    return model, results, state


@pytest.mark.parametrize(("workers", "name"), [(1, "ring"), (2, "butterfly"), (3, "binary-blocks"), (5, "ring")])
def test_collective_round_applies_the_rule_to_the_mean_with_same_bits_everywhere(workers: int, name: str) -> None:
    outcomes = run(workers, partial(train, rounds=3, momentum=0.9), name)
    weights, velocity = noise(0), None
    for number in range(1, 4):
        mean = np.mean([noise(rank, number, 2) for rank in range(workers)], axis=0)
        weights, velocity = sgd(weights, mean, velocity, Step(0.1, 0.9))
    statistics = np.mean([noise(rank, 3, 2, 1, size=SIZES[STATISTICS]) for rank in range(workers)], axis=0)
    for model, results, state in outcomes:
        np.testing.assert_allclose(model.weights, weights, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(model.vectors[STATISTICS], statistics, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state[0], velocity, rtol=1e-5, atol=1e-6)
        assert [result.round for result in results] == [1, 2, 3]
        assert results[-1].samples == 3 * sum(10 + rank for rank in range(workers))
        assert {result.elapsed for result in results} == {result.elapsed for result in outcomes[0][1]}
        assert model.weights.tobytes() == outcomes[0][0].weights.tobytes()


@pytest.mark.parametrize("overlap", [False, True])
def test_collective_round_with_different_rates_ends_on_all_ranks(overlap: bool) -> None:
    def body(exchange: CollectiveExchange) -> Any:
        model = met(exchange)
        exchange.start(payload(exchange.rank, 1), model).wait()
        after_one = model.weights.copy()
        rate = 0.5 if exchange.rank == 1 else 0.1
        try:
            exchange.start(payload(exchange.rank, 2, learning_rate=rate), model).wait()
        except JobAbortedError as error:
            return str(error), np.array_equal(model.weights, after_one)
        finally:
            exchange.close()

    outcomes = run(3, body, overlap=overlap)
    assert outcomes[0] == outcomes[1] == outcomes[2]
    message, untouched = outcomes[0]
    assert message.startswith("worker 1 committed learning rate 0.5, but worker 0 0.1 to round 2")
    assert untouched


def test_collective_auto_changes_the_schedule_on_all_ranks_together() -> None:
    def body(exchange: CollectiveExchange) -> Any:
        model = met(exchange, Limits(rounds=12))
        used = []
        while not used or not exchange.round_state.finished:
            exchange.start(payload(exchange.rank, len(used)), model).wait()
            used.append(exchange.engine.current)
        exchange.close()
        return used, model.weights.tobytes()

    outcomes = run(3, body, "auto")
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert len(outcomes[0][0]) == 12


def test_collective_round_weights_workers_by_samples() -> None:
    outcomes = run(3, partial(train, learning_rate=1.0), rule="add_mean_update", weighting="samples")
    updates = [noise(rank, 1, 2) for rank in range(3)]
    mean = np.average(updates, axis=0, weights=[10, 11, 12])
    np.testing.assert_allclose(outcomes[1][0].weights, noise(0) + mean, rtol=1e-5, atol=1e-6)


def test_collective_overlapped_exchange_gives_the_same_bits() -> None:
    def body(exchange: CollectiveExchange) -> Any:
        model = met(exchange, Limits(rounds=4))
        for number in range(1, 5):
            before = model.weights.copy()
            pending = exchange.start(payload(exchange.rank, number, momentum=0.9), model)
            assert done_in_time(pending, exchange.heartbeat)
            assert np.array_equal(model.weights, before)  # puts nothing into place unasked
            result = pending.wait()
        exchange.close()
        return result.round, result.finished, model.weights.tobytes(), model.vectors[STATISTICS].tobytes()

    overlapped, plain = run(3, body, overlap=True), run(3, body)
    assert overlapped[0][:2] == (4, True)
    assert overlapped == plain
    assert overlapped[0] == overlapped[1] == overlapped[2]


@pytest.mark.parametrize("overlap", [False, True])
def test_collective_abort_reaches_all_workers_with_its_reason(overlap: bool) -> None:
    def body(exchange: CollectiveExchange) -> Any:
        model = met(exchange)
        exchange.start(payload(exchange.rank, 1), model).wait()
        try:
            if exchange.rank == 1:
                return exchange.abort("worker 1: out of luck")
            pending = exchange.start(payload(exchange.rank, 2), model)
            assert not overlap or done_in_time(pending)
            return pending.wait()
        finally:
            exchange.close()

    outcomes = run(3, body, overlap=overlap)
    assert outcomes[1] is None
    assert all(
        isinstance(outcome, JobAbortedError) and "out of luck" in str(outcome) for outcome in (outcomes[0], outcomes[2])
    )


def test_collective_left_during_overlapped_exchange_leaves_no_thread() -> None:
    def body(exchange: CollectiveExchange) -> Any:
        model = met(exchange)
        if exchange.rank == 0:
            exchange.start(payload(exchange.rank, 1), model)
            exchange.abort("worker 0: enough")
        exchange.close()

    run(2, body, overlap=True)
    assert not [thread for thread in threading.enumerate() if thread.name == "exchange"]


def test_collective_stop_ends_the_run_on_all_workers_after_the_round() -> None:
    def body(exchange: CollectiveExchange) -> Any:
        model = met(exchange)
        rounds = 0
        while True:
            if exchange.rank == 2 and rounds == 2:
                exchange.stop()
            result = exchange.start(payload(exchange.rank, rounds), model).wait()
            rounds += 1
            if result.finished:
                break
        exchange.close()
        return rounds

    assert run(3, body) == [3, 3, 3]


def test_collective_worker_that_leaves_early_or_hangs_is_named() -> None:
    def leaving(exchange: CollectiveExchange) -> Any:
        model = met(exchange)
        if exchange.rank == 1:
            return exchange.control.broadcast(4, 0)  # wire.LEAVE
        return exchange.start(payload(exchange.rank, 1), model).wait()

    outcomes = run(3, leaving)
    assert isinstance(outcomes[0], ExchangeError)
    assert "worker 1 has left" in str(outcomes[0])

    def hanging(exchange: CollectiveExchange) -> Any:
        model = met(exchange)
        if exchange.rank == 1:
            return None
        exchange._round_timeout = 0.2
        return exchange.start(payload(exchange.rank, 1), model).wait()

    outcomes = run(3, hanging)
    assert isinstance(outcomes[0], WaitTimeoutError)
    assert "the commit of worker 1" in str(outcomes[0])


def test_collective_workers_with_different_settings_are_refused() -> None:
    outcomes = run(2, lambda exchange: met(exchange, network="lenet" if exchange.rank else "resnet"))
    assert all(
        isinstance(outcome, JobAbortedError) and "network lenet instead of resnet" in str(outcome)
        for outcome in outcomes
    )
    outcomes = run(2, met, synchronous=False)
    assert all("has no server" in str(outcome) for outcome in outcomes)


def test_collective_resume_restores_round_and_momentum_on_all_workers() -> None:
    def body(exchange: CollectiveExchange) -> Any:
        model = met(exchange, offers=Offers(True, [Offer(7, 1, 1, (0,))] if exchange.rank == 0 else []))
        result = exchange.start(payload(exchange.rank, 1, momentum=0.5), model).wait()
        exchange.close()
        return exchange.resume_at, result, model

    outcomes = run(3, body, rule="momentum_sgd")
    mean = np.mean([noise(rank, 1, 2) for rank in range(3)], axis=0)
    weights, _ = momentum_sgd(noise(0), mean, noise(99), Step(0.1, 0.5))
    for resume_at, result, model in outcomes:
        assert resume_at == 7
        assert (result.round, result.samples) == (8, 100 + 10 + 11 + 12)
        np.testing.assert_allclose(model.weights, weights, rtol=1e-5, atol=1e-6)


def test_collective_mean_keeps_frozen_statistics_bit_for_bit() -> None:
    """A mean of equal values weighted by samples would round them."""
    samples = (60, 61, 113)

    def body(exchange: CollectiveExchange) -> Any:
        model = met(exchange, Limits(rounds=20))
        initial, finished, number = model.vectors[STATISTICS].copy(), False, 0
        while not finished:
            number += 1
            sent = np.append(model.vectors[STATISTICS][:-1], np.float32(number))
            vectors = {WEIGHTS: noise(exchange.rank, number), STATISTICS: sent}
            finished = exchange.start(Payload(sources(vectors), samples[exchange.rank], 0.1), model).wait().finished
        exchange.close()
        return initial, model.vectors[STATISTICS]

    for initial, statistics in run(len(samples), body, weighting="samples"):
        assert statistics[-1] == pytest.approx(20)
        assert statistics[:-1].tobytes() == initial[:-1].tobytes()
