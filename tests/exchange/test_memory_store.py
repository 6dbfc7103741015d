"""The key store in memory: orders of delivery, its clock, deadlocks and timeouts."""

import random

import numpy as np
import pytest

from esync.exchange import ExchangeError
from esync.exchange.protocol.store import Store
from esync.runtime.errors import DeadlockError

from .memory_store import MemoryCluster, MemoryStore
from .store_checks import BUCKET, Worker, train


def introduced(store: Store) -> Worker:
    worker = Worker(store)
    store.send_handshake(worker.handshake)
    return worker


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
