"""The key store in memory: orders of delivery, its clock, deadlocks and timeouts."""

import random

import pytest

from esync.exchange import ExchangeError

from ..support.memory_cluster import MemoryCluster, MemoryStore
from .store_checks import BUCKET, train


def test_memory_cluster_with_stopped_server_is_given_up_by_all_workers() -> None:
    cluster, errors = MemoryCluster(3, random.Random(3).randrange, 2, bucket_elements=BUCKET, patience=600), list[str]()

    def work(store: MemoryStore) -> None:
        with pytest.raises(ExchangeError) as error:
            train("sgd", store)
        errors.append(str(error.value))

    cluster.at(200, lambda: cluster.stopped.add(1))
    cluster.run_all(work)
    assert len(errors) == 3
    assert all(error.startswith("gave up after 600 s of waiting for ") for error in errors)
