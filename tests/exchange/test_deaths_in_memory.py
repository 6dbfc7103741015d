"""Workers killed at random moments, in random orders of deliveries: the run ends, and holds what was committed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from esync.exchange import WEIGHTS, Payload
from esync.exchange.keystores.memory import MemoryCluster, MemoryStore
from esync.exchange.protocol import wire
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.ledger import Limits

from .store_checks import BUCKET, ROUNDS, SERVERS, SPECIFICATIONS, WORKERS, Worker
from .vectors import SIZES, Held, sources, values

RATE = 0.25
#: Kinds whose servers hold, but for rounding, the sum of what was committed.
EXACT = {"sgd": RATE / WORKERS, "async": RATE, "dcasgd": RATE, "dgs": 1.0, "dgs, secondary": 1.0}
#: Choices of a run without a death, about.
LENGTH = 600


def gradient(rank: int, sequence: int) -> np.ndarray:
    """What a worker sends in an exchange, whoever holds its slot: at places that no other worker changes."""
    whole = values(rank, sequence)[WEIGHTS]
    return np.where(np.arange(whole.size) % WORKERS == rank, whole, np.float32(0))


@dataclass
class Run:
    """A training in which workers may die.

    Attributes:
        kind: of `SPECIFICATIONS`.
        seed: of the order of things.
        models: what the workers hold that were there at the end.
    """

    kind: str
    seed: int
    models: dict[int, Held] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.cluster = MemoryCluster(WORKERS, self.chance.randrange, SERVERS, bucket_elements=BUCKET)
        for rank in range(WORKERS):
            self.cluster.start(rank, self.work)

    def work(self, store: MemoryStore) -> None:
        specification, model = SPECIFICATIONS[self.kind], Held()
        exchange = ParameterServerExchange(specification, store)
        exchange.join(SIZES, Limits(rounds=ROUNDS), {})
        self.layout = exchange.layout
        result = exchange.begin(sources(values(0)), model)
        while not result.finished:
            weights = gradient(store.rank, exchange.sequence + 1)
            vectors, step = {**values(store.rank), WEIGHTS: weights}, None
            if specification.sparse:
                places = np.flatnonzero(weights)
                del vectors[WEIGHTS]
                step = places, weights[places]
            result = exchange.start(Payload(sources(vectors), 1, RATE, step=step), model).wait()
        self.models[store.rank] = model
        exchange.close()

    def replace(self, rank: int) -> None:
        """Kill a worker, and start another one in its place."""
        self.cluster.kill(rank)
        self.models.pop(rank, None)
        self.cluster.start(rank, self.work)

    def check(self) -> None:
        assert sorted(self.models) == list(range(WORKERS))
        if SPECIFICATIONS[self.kind].synchronous:
            assert len({model.weights.tobytes() for model in self.models.values()}) == 1
        for bucket in self.layout.buckets:
            if self.kind in EXACT and bucket.vector == WEIGHTS:
                node, part = self.cluster.nodes[bucket.shard], slice(bucket.start, bucket.stop)
                ledger, expected = node.endpoint.server.ledger, values(0)[WEIGHTS][part].astype(np.float64)
                for rank in range(WORKERS):
                    used = int(ledger.acknowledged[rank]) - (not ledger.used[rank])
                    for sequence in range(1, used + 1):
                        expected -= EXACT[self.kind] * gradient(rank, sequence)[part]
                held = node.stored[self.layout.key(bucket)][wire.HEADER_ELEMENTS :]
                np.testing.assert_allclose(held, expected, rtol=1e-4, atol=1e-5)


def searched(kind: str, seed: int, plan: Callable[[Run], None]) -> None:
    run = Run(kind, seed)
    plan(run)
    try:
        run.cluster.run()
        run.check()
    except Exception as error:
        error.args = (f"{kind}, seed {seed}: {error}; last: {run.cluster.history[-5:]}",)
        raise


@pytest.mark.parametrize("kind", SPECIFICATIONS)
def test_a_worker_killed_at_any_moment_is_replaced_and_every_commit_counts_once(kind: str) -> None:
    def one_death(run: Run) -> None:
        rank = run.chance.randrange(WORKERS)
        run.cluster.at(run.chance.randrange(LENGTH), lambda: run.replace(rank))

    for seed in range(20):
        searched(kind, seed, one_death)


def test_nobody_goes_on_before_the_servers_have_been_shown_the_shared_model() -> None:
    """Others once went on as soon as its keys were kept: a private or sparse payload then found no weights."""
    for seed in range(30):
        cluster = MemoryCluster(WORKERS, random.Random(seed).randrange, SERVERS, bucket_elements=BUCKET)

        def work(store: MemoryStore, cluster: MemoryCluster = cluster) -> None:
            worker = Worker(store)
            store.greet(worker.greeting)
            worker.fill(values(store.rank), wire.NOTHING)
            store.share(worker.plan)
            shown = {index for node in cluster.nodes for index in node.endpoint.server._shelves}
            assert shown == {bucket.index for bucket in worker.layout.buckets}

        for rank in range(WORKERS):
            cluster.start(rank, work)
        cluster.run()
