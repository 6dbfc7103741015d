"""Workers that compute for longer than the lease."""

import contextlib
import math
import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from esync.exchange import Payload, SlotLostError, Specification
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.round_state import Limits
from esync.exchange.protocol.store import ArraySpec

from ..support.memory_cluster import MemoryCluster, MemoryStore
from ..support.vectors import SIZES, Held, sources, values

LEASE, LONG = 1.0, 10.0  # seconds


class Slow(MemoryStore):
    """On worker 1's link the model takes longer than the lease, each of its arrays less."""

    def fetch(self, server: int, places: Sequence[ArraySpec]) -> Iterator[np.ndarray]:
        for array in super().fetch(server, places):
            self.sleep(0.9 * LEASE * self.rank)
            yield array


def members_in_the_end(
    stops: bool = False, patience: float = math.inf, pause: float = LONG, store_type: type[MemoryStore] = MemoryStore
) -> tuple[int, ...]:
    """Two workers and three rounds; after the first, worker 1 computes for long or stands still."""
    cluster = MemoryCluster(2, random.Random(1).randrange, 2, bucket_elements=4, lease=LEASE, patience=patience)
    members: list[tuple[int, ...]] = []

    def work(store: MemoryStore) -> None:
        store.__class__ = store_type
        exchange, model = ParameterServerExchange(Specification("sgd", True), store), Held()
        exchange.join(SIZES, Limits(rounds=3), {})
        result = exchange.begin(sources(values(0)), model)
        while not result.finished:
            result = exchange.start(Payload(sources(values(store.rank)), 1, 0.1), model).wait()
            if store.rank == 1 and result.round == 1:
                cluster.suspended |= {store.nonce} if stops else set()
                store.sleep(pause)
        if store.rank == 0:
            members.append(result.members)
        exchange.close()

    with contextlib.suppress(SlotLostError):
        cluster.run_all(work)
    return members[0] if members else ()


@pytest.mark.parametrize(
    ("conditions", "members"),
    [
        ({}, (0, 1)),
        ({"stops": True}, (0,)),
        ({"patience": LONG - 2 * LEASE}, (0,)),  # no progress for half of it
        ({"pause": 0.0, "store_type": Slow}, (0, 1)),  # it is heard after each array
    ],
    ids=["computes", "stands still", "hangs", "receives"],
)
def test_worker_that_is_not_heard_for_the_lease_is_dropped_and_a_busy_one_is_not(conditions, members) -> None:
    assert members_in_the_end(**conditions) == members


def test_worker_without_a_lease_sends_no_heartbeats() -> None:
    cluster = MemoryCluster(1, random.Random(1).randrange, bucket_elements=4)
    sent: list[str] = []

    def work(store: MemoryStore) -> None:
        exchange = ParameterServerExchange(Specification("sgd", True), store)
        exchange.join(SIZES, Limits(rounds=2), {})
        before = len(cluster.history)
        store.sleep(LONG)
        sent.extend(event for event in cluster.history[before:] if "array" in event)

    cluster.run_all(work)
    assert not sent
