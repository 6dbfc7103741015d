"""Properties of compressed rounds: identical workers, no lost update, replacements; checkpoints: see host groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esync.exchange import SlotLostError, Specification
from esync.exchange.protocol.status import Status
from tests.support.memory_exchanges import MemoryExchanges, Worker

KINDS = ["fp16", "4bit", "2bit"]
quick = settings(max_examples=12, deadline=None)
seeds = st.integers(0, 2**16)


def normal(rng: np.random.Generator, size: int, scale: float = 1.0) -> np.ndarray:
    return (scale * rng.standard_normal(size)).astype(np.float32)


def started(
    kind: str,
    workers: int,
    tensors: list[int],
    weights: np.ndarray,
    *,
    servers: int = 1,
    bucket_elements: int = 16,
    seed: int = 0,
) -> MemoryExchanges:
    asked = Specification("add_mean_update", True, compression=kind, tensors=tensors)
    return MemoryExchanges(asked, workers, weights, servers, bucket_elements, seed)


@quick
@given(st.sampled_from(KINDS), st.integers(1, 4), st.integers(1, 3), st.lists(st.integers(1, 60), min_size=1), seeds)
def test_compressed_rounds_keep_all_workers_identical_and_lose_nothing(
    kind: str, workers: int, servers: int, tensors: list[int], seed: int
) -> None:
    rng, size = np.random.default_rng(seed), sum(tensors)
    initial_weights = normal(rng, size)
    cluster = started(kind, workers, tensors, initial_weights, servers=servers, seed=seed)
    crowd = cluster.workers
    total_updates = np.zeros((workers, size))
    for _ in range(4):
        updates = [normal(rng, size, 0.01) for _ in crowd]
        total_updates += updates
        cluster.round(crowd, updates)
        assert cluster.agrees_with(*crowd)
    residuals = np.array([worker.codec.encoder.residual for worker in crowd], np.float64)
    np.testing.assert_allclose(
        cluster.exact, initial_weights + (total_updates - residuals).mean(axis=0), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sent", [False, True])
def test_compressed_rounds_with_dropped_worker_continue_and_accept_a_replacement(kind: str, sent: bool) -> None:
    rng = np.random.default_rng(5)
    initial_weights = normal(rng, 3000)
    cluster = started(kind, 3, [2000, 1000], initial_weights, servers=2, bucket_elements=700)
    crowd = cluster.workers
    cluster.round(crowd, [normal(rng, 3000, 0.01) for _ in crowd])
    before, last = cluster.exact, normal(rng, 3000, 0.01)
    for worker in crowd[:2]:
        worker.send(last)
    if sent:
        crowd[2].send(last)  # its commit counts, though nobody hears of it any more
    else:
        cluster.drop(2)
    for worker in crowd[:2]:
        worker.fetch()
    if sent:
        cluster.drop(2)
    moved = cluster.exact - before
    if kind == "fp16":  # the mean is over who was there, and all of them have sent the same
        np.testing.assert_allclose(moved, last, atol=1e-4)
    assert np.dot(moved, last) > 0
    cluster.round(crowd[:2], [normal(rng, 3000, 0.01) for _ in range(2)])
    replacement = cluster.replace(2)
    for _ in range(2):
        cluster.round([*crowd[:2], replacement], [normal(rng, 3000, 0.01) for _ in range(3)])
    assert cluster.agrees_with(*crowd[:2], replacement)
    assert [list(server.round_state.acknowledged) for server in cluster.servers] == 2 * [[5, 5, 3 + sent]]


def test_compressed_residuals_are_refused_by_exchange_without_compression() -> None:
    """Ignoring them would lose updates."""
    cluster = started("fp16", 1, [9], np.zeros(9, np.float32))
    plain = started("none", 1, [9], np.zeros(9, np.float32))
    with pytest.raises(ValueError, match="this codec keeps none"):
        plain.workers[0].exchange.restore_unsent(cluster.workers[0].exchange.unsent())
    assert plain.workers[0].exchange.unsent() == {}


def test_compressed_worker_that_missed_an_answer_raises_slot_lost() -> None:
    rng = np.random.default_rng(8)
    cluster = started("fp16", 2, [9], np.zeros(9, np.float32))
    first, second = cluster.workers
    first.send(normal(rng, 9))
    second.send(normal(rng, 9))
    cluster.drop(1)
    first.fetch()
    cluster.round([first], [normal(rng, 9)])
    with pytest.raises(SlotLostError, match="step 2"):
        second.fetch()


@pytest.mark.parametrize(("kind", "seed"), [("fp16", 0), ("fp16", 1), ("2bit", 2)])
def test_compressed_round_that_ends_during_replacement_pull_counts_once(kind: str, seed: int) -> None:
    """The dead worker's commit reached the first server only, whose round ends after the pull."""
    rng, size = np.random.default_rng(5), 90
    side = started(kind, 2, [50, 40], normal(rng, size), servers=2, seed=seed)
    first, second = side.workers
    side.round([first, second], [normal(rng, size), normal(rng, size)])
    second.die(normal(rng, size), before=1)
    replacement = side.workers[1] = Worker(side, 1)
    asked, statuses = [], replacement.store.statuses

    def ask() -> list[Status]:
        asked.append(None)
        if len(asked) == 2:  # it has the model, and wants to know what it belongs to
            side.cluster.wait(lambda: side.servers[0].round_state.round == 2)
        return statuses()

    def commit() -> None:
        side.cluster.wait(lambda: len(asked) == 2)
        first.start(normal(rng, size))

    replacement.store.statuses = ask
    first.spawn(commit)
    side.cluster.run()
    replacement.send(normal(rng, size))
    for worker in (first, replacement):
        worker.fetch()
    side.round([first, replacement], [normal(rng, size), normal(rng, size)])
    assert side.agrees_with(first, replacement)
