"""Workers killed at random moments, with random orders of delivery, over servers in memory."""

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from esync.exchange import WEIGHTS, Payload, Result
from esync.exchange.protocol import wire
from esync.exchange.protocol.client import ParameterServerExchange

from .memory_exchanges import MemoryRun
from .memory_store import MemoryCluster, MemoryStore
from .store_checks import BUCKET, SERVERS, SPECIFICATIONS, WORKERS, Worker
from .vectors import gradient, sources, values

RATE = 0.25
#: Kinds whose servers hold, but for rounding, the sum of what was committed.
EXACT = {"sgd": RATE / WORKERS, "async": RATE, "dcasgd": RATE, "dgs": 1.0, "dgs, secondary": 1.0}
#: Choices of a run without a death, about.
LENGTH = 600


class Run(MemoryRun):
    """A training of a kind of `SPECIFICATIONS`."""

    def __init__(self, kind: str, seed: int, **options: Any) -> None:
        super().__init__(SPECIFICATIONS[kind], seed, **options)
        self.kind = kind

    def __str__(self) -> str:
        return self.kind

    def payload(self, exchange: ParameterServerExchange, result: Result) -> Payload:
        weights = gradient(exchange.rank, exchange.sequence + 1, WORKERS)
        vectors, step = {**values(exchange.rank), WEIGHTS: weights}, None
        if self.specification.sparse:
            places = np.flatnonzero(weights)
            del vectors[WEIGHTS]
            step = places, weights[places]
        return Payload(sources(vectors), 1, RATE, step=step)

    def check(self) -> None:
        if self.specification.synchronous:
            assert len({model.weights.tobytes() for model in self.models.values()}) == 1
        for bucket in self.layout.of(WEIGHTS) if self.kind in EXACT else ():
            node, part = self.cluster.nodes[bucket.shard], slice(bucket.start, bucket.stop)
            round_state, expected = node.endpoint.server.round_state, values(0)[WEIGHTS][part].astype(np.float64)
            for rank in range(WORKERS):
                used = int(round_state.acknowledged[rank]) - (not round_state.used[rank])
                for sequence in range(1, used + 1):
                    expected -= EXACT[self.kind] * gradient(rank, sequence, WORKERS)[part]
            held = node.stored[self.layout.key(bucket)][wire.HEADER_ELEMENTS :]
            np.testing.assert_allclose(held, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", SPECIFICATIONS)
def test_worker_killed_at_any_moment_is_replaced_and_every_commit_counts_once(kind: str) -> None:
    for seed in range(8):
        run = Run(kind, seed)
        rank = run.chance.randrange(WORKERS)
        run.cluster.at(run.chance.randrange(LENGTH), partial(run.replace, rank))
        run.finish()


@pytest.mark.parametrize("hosts", [[(0, 1, 2)], [(0, 2), (1,)]])
@pytest.mark.parametrize("kind", [kind for kind, asked in SPECIFICATIONS.items() if asked.synchronous])
def test_worker_of_a_host_killed_at_any_step_is_replaced_and_every_commit_counts_once(
    kind: str, hosts: list[tuple[int, ...]]
) -> None:
    for step in range(0, LENGTH, 100):
        run = Run(kind, step, hosts=hosts)
        run.cluster.at(step, partial(run.replace, step % WORKERS))
        run.finish()


@pytest.mark.long
@pytest.mark.parametrize("rank", range(WORKERS))
@pytest.mark.parametrize("kind", ["sgd", "fp16", "overlap"])
def test_worker_of_a_host_killed_at_each_step_is_replaced_and_every_commit_counts_once(kind: str, rank: int) -> None:
    for step in range(LENGTH):
        run = Run(kind, 3, hosts=[(0, 1, 2)])
        run.cluster.at(step, partial(run.replace, rank))
        run.finish()


def test_workers_start_only_after_servers_hold_the_shared_model() -> None:
    """They once began when the keys existed; a private or sparse payload then found no weights."""
    for seed in range(15):
        cluster = MemoryCluster(WORKERS, random.Random(seed).randrange, SERVERS, bucket_elements=BUCKET)

        def work(store: MemoryStore, cluster: MemoryCluster = cluster) -> None:
            worker = Worker(store)
            store.send_handshake(worker.handshake)
            worker.fill(values(store.rank), wire.NOTHING)
            store.init_shared(worker.plan)
            shown = {index for node in cluster.nodes for index in node.endpoint.server.model.buckets}
            assert shown == {bucket.index for bucket in worker.layout.buckets}

        for rank in range(WORKERS):
            cluster.start(rank, work)
        cluster.run()
