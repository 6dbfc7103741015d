"""The key store in memory: orders of delivery, its clock, deadlocks and timeouts."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esync.exchange import ExchangeError
from esync.exchange.protocol import wire
from esync.exchange.protocol.store import Store
from esync.runtime.errors import DeadlockError

from .memory_store import MemoryCluster, MemoryStore
from .store_checks import BUCKET, Worker, assert_same, train
from .vectors import values


def history(seed: int) -> list[str]:
    cluster = MemoryCluster(3, random.Random(seed).randrange, 2, bucket_elements=BUCKET)
    for rank in range(3):
        cluster.start(rank, lambda store: train("sgd", store))
    cluster.run()
    return cluster.history


def test_memory_cluster_with_the_same_choices_repeats_its_history() -> None:
    assert history(1) == history(1)
    assert history(1) != history(2)


def introduced(store: Store) -> Worker:
    worker = Worker(store)
    store.send_handshake(worker.handshake)
    return worker


@settings(max_examples=12, deadline=None)
@given(st.randoms(use_true_random=False))
def test_memory_store_keeps_arrays_of_one_key_in_order_and_reorders_others(chance: random.Random) -> None:
    cluster = MemoryCluster(1, chance.randrange, 1)

    def work(store: MemoryStore) -> None:
        introduced(store)
        for number in range(3):
            for key in (100, 101):
                store.buffer(key, 9)[8] = number
                store.send(0, [(key, 9)])
        store.flush()

    cluster.start(0, work)
    arrived: list[tuple[int, float]] = []
    push = cluster.nodes[0].push

    def note(key: int, array: np.ndarray, init: bool = False) -> None:
        if key >= 100:
            arrived.append((key, float(array[8])))
        push(key, array, init)

    cluster.nodes[0].push = note  # type: ignore[method-assign, assignment]
    cluster.run()
    for key in (100, 101):
        assert [number for each, number in arrived if each == key] == [0, 0, 1, 2]  # the first one sets it up


def test_memory_cluster_reaches_every_order_of_two_keys() -> None:
    def order(seed: int) -> tuple[str, ...]:
        cluster = MemoryCluster(1, random.Random(seed).randrange, 1)

        def work(store: MemoryStore) -> None:
            introduced(store)
            for key in (100, 101):
                store.buffer(key, 9)
                store.send(0, [(key, 9)])
            store.send(0, (), {"kind": wire.NOTHING})

        cluster.start(0, work)
        cluster.run()
        return tuple(each.split()[4] for each in cluster.history if each.startswith("an array"))[-5:]

    assert len({order(seed) for seed in range(300)}) == 5 * 4 * 3 // 2  # 100, 100, 101, 101 and the message


def test_memory_store_ignores_second_init_and_binds_the_size_of_a_key() -> None:
    cluster = MemoryCluster(1, lambda options: 0, 1)

    def work(store: MemoryStore) -> None:
        worker = introduced(store)
        for seed in (1, 2):
            worker.fill(values(seed), wire.NOTHING)
            store._init([key for part in worker.plan for key, _ in part])
        assert_same(worker.fetched(), values(1))
        key, elements = worker.plan[0][0]
        store.release([key])
        store.buffer(key, elements + 1)
        store.send(0, [(key, elements + 1)])
        store.flush()

    cluster.start(0, work)
    with pytest.raises(ValueError, match=r"key \d+ is bound to 12 values, and 13 have come"):
        cluster.run()


def test_memory_cluster_in_deadlock_names_who_waits_for_what() -> None:
    cluster = MemoryCluster(2, random.Random(3).randrange, 1, bucket_elements=BUCKET)
    cluster.start(0, lambda store: train("sgd", store))
    with pytest.raises(DeadlockError, match=r"worker 0 waits for .*the other workers to come"):
        cluster.run()


def test_memory_cluster_with_stopped_server_is_given_up_by_all_workers() -> None:
    cluster, errors = MemoryCluster(3, random.Random(3).randrange, 2, bucket_elements=BUCKET, patience=600), list[str]()

    def work(store: MemoryStore) -> None:
        with pytest.raises(ExchangeError) as error:
            train("sgd", store)
        errors.append(str(error.value))

    for rank in range(3):
        cluster.start(rank, work)
    cluster.at(200, lambda: cluster.stopped.add(1))
    cluster.run()
    assert len(errors) == 3
    assert all(error.startswith("gave up after 600 s of waiting for ") for error in errors)


def test_memory_cluster_that_never_ends_raises_deadlock_error() -> None:
    cluster = MemoryCluster(1, lambda options: 0, 1, most=500)

    def work(store: MemoryStore) -> None:
        while True:
            store.sleep(0.01)

    cluster.start(0, work)
    with pytest.raises(DeadlockError, match="no end after 500 choices: worker 0"):
        cluster.run()


def test_memory_store_of_killed_worker_delivers_a_prefix_in_order() -> None:
    def kept(seed: int) -> tuple[float, float]:
        cluster = MemoryCluster(1, random.Random(seed).randrange, 1)
        store = cluster.start(0, lambda store: work(store))

        def work(store: MemoryStore) -> None:
            introduced(store)
            for key in (100, 101):
                store.buffer(key, 9)
                store.open([[(key, 9)]])
            for number in (1, 2):
                for key in (100, 101):
                    store.buffer(key, 9)[8] = number
                    store.send(0, [(key, 9)])
            cluster.at(len(cluster.history), lambda: cluster.kill(0))
            try:
                store.flush()
            finally:
                store.buffer(100, 9)[8] = 3
                store.send(0, [(100, 9)])  # a dead process sends nothing

        arrived = {100: 0.0, 101: 0.0}
        push = cluster.nodes[0].push

        def note(key: int, array: np.ndarray, init: bool = False) -> None:
            if key in arrived:
                assert array[8] in (arrived[key], arrived[key] + 1)
                arrived[key] = float(array[8])
            push(key, array, init)

        cluster.nodes[0].push = note  # type: ignore[method-assign, assignment]
        cluster.run()
        assert store.nonce == cluster.holders[0]
        return arrived[100], arrived[101]

    assert {kept(seed) for seed in range(100)} == {(one, two) for one in (0, 1, 2) for two in (0, 1, 2)}
