"""Collectives in virtual time, against what latency and bandwidth allow."""

import pytest

from esync import config
from esync.exchange.collectives.transport import bucket_bytes
from esync.simulate.allreduce import Allreduce
from esync.simulate.engine import SimulationEngine
from esync.simulate.network import Link, Network

BANDWIDTH, LATENCY = 117.5e6, 1e-4


def seconds(name: str, ranks: int, size: int, byte_time: float = 0.0) -> float:
    """Virtual time of one sum."""
    engine = SimulationEngine()
    network = Network(engine, lambda host: Link(BANDWIDTH, LATENCY / 2), [])
    done: dict[int, float] = {}
    maximum = bucket_bytes(ranks, crowded=True)
    buckets = [min(maximum, size - at) // 4 for at in range(0, size, maximum)]
    hosts = [f"host-{rank}" for rank in range(ranks)]
    reduce = Allreduce(
        engine, network, hosts, name, buckets, lambda rank: done.setdefault(rank, engine.time), byte_time
    )
    for rank in range(ranks):
        reduce.begin(rank, 0.0)
    engine.run()
    assert sorted(done) == list(range(ranks))
    return max(done.values())


def test_butterfly_and_mpi_need_fewer_steps_than_a_ring_for_small_models() -> None:
    steps = {name: seconds(name, 8, 4_000) for name in ("ring", "butterfly", "binary-blocks", "mpi")}
    assert steps["butterfly"] == steps["mpi"] == steps["binary-blocks"] < steps["ring"] / 2  # 6 instead of 14


@pytest.mark.parametrize("name", ["ring", "butterfly", "binary-blocks", "mpi"])
def test_allreduce_of_large_model_is_bound_by_the_bandwidth(name: str) -> None:
    size, ranks = 100_000_000, 4
    minimum = 2 * size * (ranks - 1) / ranks / BANDWIDTH
    assert minimum <= seconds(name, ranks, size) <= 1.15 * minimum


def test_rule_takes_time_after_the_last_buckets_or_throughout_where_it_takes_longer_than_the_network() -> None:
    size, last = 100_000_000, config.COLLECTIVE_WINDOW * bucket_bytes(4, crowded=True)
    network = seconds("ring", 4, size)
    short, long = 1e-9, 1e-7
    assert network < seconds("ring", 4, size, short) <= network + short * last
    assert long * size <= seconds("ring", 4, size, long) <= 1.1 * long * size + network / 4
