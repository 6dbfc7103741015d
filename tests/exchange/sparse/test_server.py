from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esync.exchange import Specification
from esync.exchange.codecs.shards import ServerShard
from esync.exchange.codecs.sparse import Differences, bounds_of
from esync.exchange.codecs.sparse.bitmap import list_marked, no_marks
from esync.exchange.codecs.sparse.tracker import PendingIndices
from esync.exchange.codecs.sparse_difference import DifferenceDownlink
from tests.support.memory_exchanges import Kept, MemoryExchanges, Worker

TENSORS = [5, 30, 1, 12]
SIZE = sum(TENSORS)

#: Who sends, and a seed of what; −1 instead of a worker: the next one has died and is replaced.
moves = st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2**16)), max_size=12)


def some_step(seed: int) -> np.ndarray:
    """A sparse step with values of very different sizes."""
    rng = np.random.default_rng(seed)
    step = (rng.standard_normal(SIZE) * 10.0 ** rng.integers(-5, 3, SIZE)).astype(np.float32)
    step[rng.random(SIZE) < rng.random()] = 0
    return step


def start(
    workers: int = 3,
    *,
    servers: int = 1,
    bucket_elements: int = 8,
    secondary_ratio: float = 0.0,
    values: str = "float32",
    seed: int = 0,
    checkpoint: Kept | None = None,
) -> tuple[MemoryExchanges, list[Worker]]:
    initial = np.random.default_rng(7).standard_normal(SIZE).astype(np.float32)
    options = {"tensors": TENSORS, "secondary_ratio": secondary_ratio, "dense_below": 0, "values": values}
    private = not Differences(secondary_ratio, 0, values).replace
    asked = Specification("difference", False, options, private=private, sparse=True)
    cluster = MemoryExchanges(asked, workers, initial, servers, bucket_elements, seed, kept=checkpoint)
    return cluster, cluster.workers


def shards_of(cluster: MemoryExchanges) -> list[ServerShard]:
    return [ServerShard(cluster.layout, server, bounds_of(TENSORS)) for server in range(cluster.layout.servers)]


def pending_for(cluster: MemoryExchanges, server: int, worker: Worker) -> PendingIndices:
    """Where a server takes a worker's weights to differ from the model."""
    downlink = cluster.servers[server].downlink
    assert isinstance(downlink, DifferenceDownlink)
    return downlink._tracker._pending[worker.rank]


def believed(cluster: MemoryExchanges, worker: Worker) -> np.ndarray:
    """The weights that the servers believe a worker to have.

    Where answers are new values, they only know where it has the model's, which is everywhere but
    at what is pending for it.
    """
    if cluster.asked.private:
        return cluster.weights(worker.rank + 1)
    flat = cluster.weights()
    for server, shard in enumerate(shards_of(cluster)):
        bits = no_marks(shard.size)
        pending_for(cluster, server, worker).mark(bits)
        places = np.empty(shard.size, np.int64)
        pending = places[: list_marked(bits, places)]
        indices, _ = shard.to_global((pending, np.zeros(pending.size, np.float32)))
        flat[indices] = worker.weights[indices]
    return flat


@settings(max_examples=25, deadline=None)
@given(
    moves,
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from(["float32", "float16"]),
    st.integers(1, 3),
    st.sampled_from([8, 40]),  # of the larger ones not every server has any
    st.integers(0, 99),
)
def test_sparse_worker_holds_what_the_server_tracks(
    moves: list[tuple[int, int]], secondary: float, values: str, servers: int, bucket: int, order: int
) -> None:
    cluster, workers = start(
        secondary_ratio=secondary, values=values, servers=servers, bucket_elements=bucket, seed=order
    )
    expected = cluster.weights()
    for mover, seed in moves:
        if mover < 0:
            rank = seed % 3
            cluster.replace(rank)
            assert workers[rank].weights.tobytes() == expected.tobytes()
            continue
        step = some_step(seed)
        cluster.round([workers[mover]], [step])
        arrived = step if values == "float32" else np.clip(step, -65504, 65504).astype(np.float16).astype(np.float32)
        expected = expected - arrived
        # Every update has gone into the model once, in order …
        assert cluster.weights().tobytes() == expected.tobytes()
        # … and θ_k = θ0 + v_k for every worker, to the last bit.
        for worker in workers:
            assert believed(cluster, worker).tobytes() == worker.weights.tobytes()
        if not secondary and values == "float32":
            assert workers[mover].weights.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("secondary", "values", "servers"), [(0.0, "float32", 2), (0.2, "float16", 1)])
def test_sparse_run_resumed_from_checkpoint_begins_with_the_servers_weights(
    secondary: float, values: str, servers: int
) -> None:
    """All workers begin with them; without secondary compression rank 0 has the same weights
    anyhow.
    """
    options: dict[str, Any] = {"secondary_ratio": secondary, "values": values, "servers": servers}
    reference, workers = start(2, **options)
    for seed in range(4):
        reference.round([workers[seed % 2]], [some_step(seed)])
    reference.round([workers[0]], [some_step(4)])
    resumed, resumed_workers = start(2, checkpoint=reference.checkpoint(), **options)
    for resumed_worker in resumed_workers:
        assert resumed_worker.weights.tobytes() == reference.weights().tobytes()
        assert believed(resumed, resumed_worker).tobytes() == resumed_worker.weights.tobytes()
    for side in (reference, resumed):
        for seed in range(5, 9):
            side.round([side.workers[seed % 2]], [some_step(seed)])
    assert resumed.weights().tobytes() == reference.weights().tobytes()
    for mine, other in zip(resumed_workers, workers, strict=True):
        assert believed(resumed, mine).tobytes() == mine.weights.tobytes()
        if not reference.asked.private:
            assert mine.weights.tobytes() == other.weights.tobytes()


def test_sparse_downlink_sends_held_back_values_later() -> None:
    cluster, workers = start(workers=2, secondary_ratio=0.2)
    for seed in range(4):
        cluster.round([workers[0]], [some_step(seed)])
    for _ in range(60):
        cluster.round([workers[1]], [np.zeros(SIZE, np.float32)])
    np.testing.assert_allclose(workers[1].weights, cluster.weights(), rtol=1e-5, atol=1e-6)


def test_sparse_downlink_with_secondary_compression_stays_within_its_share() -> None:
    cluster, workers = start(workers=2, secondary_ratio=0.1)
    for seed in range(5):
        cluster.round([workers[0]], [np.ones(SIZE, np.float32) * (seed + 1)])
    before = workers[1].weights.copy()
    cluster.round([workers[1]], [np.zeros(SIZE, np.float32)])
    changed = np.count_nonzero(before != workers[1].weights)
    segments = sum(len(shard.bounds) - 1 for shard in shards_of(cluster))
    assert 0 < changed <= max(segments, SIZE // 10 + segments)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("committed", [0, 1])  # servers that have used the step when its worker dies
def test_sparse_replacement_sends_a_step_that_counts_once_on_all_servers(committed: int, seed: int) -> None:
    """It gets nothing of what its predecessor was owed."""
    cluster, workers = start(workers=2, servers=2, seed=seed)
    expected, step = cluster.weights(), some_step(4)
    workers[1].die(step, before=committed)
    cluster.replace(1)
    cluster.round([workers[1]], [step])
    assert cluster.weights().tobytes() == workers[1].weights.tobytes() == (expected - step).tobytes()


@pytest.mark.parametrize("secondary", [0.0, 0.1])
def test_sparse_server_memory_is_the_model_plus_one_per_worker_for_differences(secondary: float) -> None:
    cluster, workers = start(workers=3, bucket_elements=64, secondary_ratio=secondary)
    step = some_step(1)
    cluster.round([workers[0]], [step])
    server = cluster.servers[0]
    models = 4 * SIZE * (1 + (3 if secondary else 0))
    rooms = sum(
        4 * len(values) for key, values in cluster.cluster.nodes[0].stored.items() if server.downlink.holds(key)
    )
    bits = 8 * -(-SIZE // 64)
    assert models <= server.downlink.memory_bytes <= models + rooms + 2 * 4 * np.count_nonzero(step) + bits


def test_sparse_server_memory_for_absent_worker_is_a_bit_per_weight() -> None:
    cluster, workers = start(workers=2)
    for seed in range(40):
        cluster.round([workers[0]], [some_step(seed)])
    pending = pending_for(cluster, 0, workers[1])
    assert pending.entries <= SIZE
    assert pending.bits is not None
    cluster.round([workers[1]], [np.zeros(SIZE, np.float32)])
    assert workers[1].weights.tobytes() == cluster.weights().tobytes()
