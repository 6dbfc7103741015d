import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esync.exchange.protocol import wire
from tests.sparse.memory_cluster import MemoryCluster, MemoryWorker, downlink_of

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


def start(workers: int = 3, **options: object) -> tuple[MemoryCluster, list[MemoryWorker]]:
    initial = np.random.default_rng(7).standard_normal(SIZE).astype(np.float32)
    cluster = MemoryCluster(workers, TENSORS, initial, **options)  # type: ignore[arg-type]
    return cluster, [MemoryWorker(cluster, rank, 1 + rank) for rank in range(workers)]


@settings(max_examples=40, deadline=None)
@given(moves, st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from(["float32", "float16"]), st.integers(1, 3))
def test_each_worker_has_what_the_server_believes(
    moves: list[tuple[int, int]], secondary: float, values: str, servers: int
) -> None:
    cluster, workers = start(secondary_ratio=secondary, values=values, servers=servers)
    expected = cluster.weights()
    for mover, seed in moves:
        if mover < 0:
            rank = seed % 3
            workers[rank] = MemoryWorker(cluster, rank, 100 + seed)
            assert workers[rank].theta.tobytes() == expected.tobytes()
            continue
        step = some_step(seed)
        workers[mover].exchange(step)
        arrived = step if values == "float32" else np.clip(step, -65504, 65504).astype(np.float16).astype(np.float32)
        expected = expected - arrived
        # Every update has gone into the model once, in order …
        assert cluster.weights().tobytes() == expected.tobytes()
        # … and θ_k = θ0 + v_k for every worker, to the last bit.
        for worker in workers:
            assert cluster.believed(worker).tobytes() == worker.theta.tobytes()
        if not secondary and values == "float32":
            assert workers[mover].theta.tobytes() == expected.tobytes()


def test_what_was_held_back_comes_with_later_answers() -> None:
    cluster, workers = start(workers=2, secondary_ratio=0.2)
    for seed in range(4):
        workers[0].exchange(some_step(seed))
    for _ in range(60):
        workers[1].exchange(np.zeros(SIZE, np.float32))
    np.testing.assert_allclose(workers[1].theta, cluster.weights(), rtol=1e-5, atol=1e-6)


def test_an_answer_with_secondary_compression_is_no_larger_than_its_share() -> None:
    cluster, workers = start(workers=2, secondary_ratio=0.1)
    for seed in range(5):
        workers[0].exchange(np.ones(SIZE, np.float32) * (seed + 1))
    before = workers[1].theta.copy()
    workers[1].exchange(np.zeros(SIZE, np.float32))
    changed = np.count_nonzero(before != workers[1].theta)
    segments = sum(len(shard.bounds) - 1 for shard in cluster.shards)
    assert 0 < changed <= max(segments, SIZE // 10 + segments)


@pytest.mark.parametrize("damage", ["bit", "cut", "version", "model"])
def test_a_malformed_message_ends_the_run_and_changes_nothing(damage: str) -> None:
    cluster, workers = start(workers=2, bucket_elements=64)
    workers[0].exchange(some_step(1))
    before = cluster.weights()
    worker = workers[1]
    worker.sequence += 1
    step = some_step(2)
    places = np.flatnonzero(step)
    (pieces,) = worker.pack((places, step[places]))
    raw = pieces[0][1][wire.HEADER_ELEMENTS :].view(np.uint8)
    if damage == "bit":
        raw[60] ^= 4
    elif damage == "cut":
        raw[24:] = 0
    elif damage == "version":
        raw[4] = 99
    else:
        raw[8] = 3
    worker.send(0, pieces)
    status = cluster.status()
    assert status["aborted"]
    assert "worker 1: " in bytes(status["text"]).decode()
    assert cluster.weights().tobytes() == before.tobytes()


def test_a_worker_that_dies_before_its_commit_has_sent_nothing() -> None:
    cluster, workers = start(workers=2, servers=2)
    before = cluster.weights()
    step = some_step(3)
    places = np.flatnonzero(step)
    workers[1].sequence += 1
    workers[1].send(0, workers[1].pack((places, step[places]))[0], commit=False)
    workers[1] = MemoryWorker(cluster, 1, 50)
    workers[1].exchange(np.zeros(SIZE, np.float32))
    assert cluster.weights().tobytes() == before.tobytes()


def test_a_worker_answered_by_one_server_only_does_not_get_its_predecessors_answer() -> None:
    cluster, workers = start(workers=2, servers=2)
    step = some_step(4)
    places = np.flatnonzero(step)
    workers[1].sequence += 1
    workers[1].send(0, workers[1].pack((places, step[places]))[0])  # used by server 0, never seen by server 1
    workers[1] = MemoryWorker(cluster, 1, 50)
    workers[1].exchange(step)
    assert cluster.weights().tobytes() == workers[1].theta.tobytes()


def test_a_server_that_has_no_bucket_answers_too() -> None:
    cluster, workers = start(workers=2, servers=3, bucket_elements=40)
    step = some_step(6)
    for worker in workers:
        worker.exchange(step)
    np.testing.assert_allclose(workers[1].theta, cluster.weights(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("secondary", [0.0, 0.1])
def test_memory_is_the_model_and_where_differences_are_sent_each_workers(secondary: float) -> None:
    cluster, workers = start(workers=3, bucket_elements=64, secondary_ratio=secondary)
    step = some_step(1)
    workers[0].exchange(step)
    server = cluster.servers[0]
    models = 4 * SIZE * (1 + (3 if secondary else 0))
    rooms = sum(4 * len(values) for key, values in cluster.stored.items() if server.downlink.holds(key))
    bits = 8 * -(-SIZE // 64)
    assert models <= server.downlink.bytes_kept <= models + rooms + 2 * 4 * np.count_nonzero(step) + bits
    assert wire.PROTOCOL >= 3


def test_what_waits_for_a_worker_that_never_comes_takes_a_bit_for_each_weight() -> None:
    cluster, workers = start(workers=2)
    for seed in range(40):
        workers[0].exchange(some_step(seed))
    pending = downlink_of(cluster.servers[0]).pending(1)
    assert pending.entries <= SIZE
    assert pending.bits is not None
    workers[1].exchange(np.zeros(SIZE, np.float32))
    assert workers[1].theta.tobytes() == cluster.weights().tobytes()
