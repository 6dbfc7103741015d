"""All key stores fulfil the protocol, and a training gives the same bits over each of them."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from esync.exchange.protocol import wire
from esync.exchange.protocol.store import Store
from esync.simulate.cluster_state import ClusterState
from esync.simulate.engine import SimulationEngine
from esync.simulate.network import Link, Network
from esync.simulate.servers import ServerModel, ServerNode
from esync.simulate.store import VirtualStore

from ..support.memory_cluster import MemoryCluster
from ..support.vectors import Held, values
from .store_checks import BUCKET, SERVERS, SPECIFICATIONS, WORKERS, Worker, check_store, comparable, train

#: Does the same work on all workers of a fresh cluster.
Run = Callable[[Callable[[Store], object]], None]


def in_memory(seed: int) -> Run:
    """Return what runs work in memory, in an order that a seed says."""
    return MemoryCluster(WORKERS, random.Random(seed).randrange, SERVERS, bucket_elements=BUCKET).run_all


def in_virtual_time(seed: int) -> Run:
    """Return what runs work in virtual time, where each host is a random time away."""

    def run(work: Callable[[Store], object]) -> None:
        engine, chance = SimulationEngine(), random.Random(seed)
        hosts = [f"server-{shard}" for shard in range(SERVERS)]
        network = Network(engine, lambda host: Link(1e8, chance.uniform(0, 0.01)), hosts)
        nodes = [ServerNode(engine, ServerModel(host), shard) for shard, host in enumerate(hosts)]
        side = ClusterState(engine, network, nodes, WORKERS, bucket_elements=BUCKET)
        for rank in range(WORKERS):
            store = VirtualStore(side, f"host-{rank}", rank, rank)
            engine.spawn(f"worker {rank}", lambda store=store: work(store))
        engine.run()

    return run


STORES = {"memory": in_memory, "virtual time": in_virtual_time}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("store", STORES)
def test_store_fulfils_the_protocol(store: str, seed: int) -> None:
    done: set[int] = set()

    def work(store: Store) -> None:
        check_store(store)
        done.add(store.rank)

    STORES[store](seed)(work)
    assert done == set(range(WORKERS))


def test_workers_start_only_after_servers_hold_the_shared_model() -> None:
    """They once began when the keys existed; a private or sparse payload then found no weights."""
    for seed in range(15):
        cluster = MemoryCluster(WORKERS, random.Random(seed).randrange, SERVERS, bucket_elements=BUCKET)

        def work(store: Store, cluster: MemoryCluster = cluster) -> None:
            worker = Worker(store)
            store.send_handshake(worker.handshake)
            worker.fill(values(store.rank), wire.NOTHING)
            store.init_shared(worker.plan)
            shown = {index for node in cluster.nodes for index in node.endpoint.server.model.buckets}
            assert shown == {bucket.index for bucket in worker.layout.buckets}

        cluster.run_all(work)


def trained(kind: str, run: Run) -> list[dict[str, bytes]]:
    """What the workers hold in the end, rank by rank, as far as it can be compared."""
    held: dict[int, Held] = {}

    def work(store: Store) -> None:
        held[store.rank] = train(kind, store)

    run(work)
    ranks, names = comparable(kind)
    return [{name: held[rank].vectors[name].tobytes() for name in names} for rank in ranks]


@pytest.mark.parametrize("kind", SPECIFICATIONS)
def test_training_gives_the_same_bits_on_every_store_in_every_order(kind: str) -> None:
    expected = trained(kind, in_memory(0))
    assert np.isfinite(np.frombuffer(b"".join(expected[0].values()), np.float32)).all()
    for seed in range(1, 4):
        assert trained(kind, in_memory(seed)) == expected
    for seed in range(3):
        assert trained(kind, in_virtual_time(seed)) == expected
