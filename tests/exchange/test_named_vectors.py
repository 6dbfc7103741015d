"""Vectors with rules of their own beside weights and statistics, and scalars, wherever exchanged."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from esync.exchange import STATISTICS, WEIGHTS, Payload, Result, Specification
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.round_state import Limits
from esync.rules import Rule, add_mean_update, outer_nesterov, sgd
from esync.runtime.straggler_injection import Straggler
from esync.simulate.collective import SharedCollectiveState, SimulatedCollective
from esync.simulate.engine import SimulationEngine
from esync.simulate.network import Link, Network

from ..support.memory_cluster import MemoryCluster
from ..support.memory_servers import MemoryServers
from ..support.vectors import Held, sources
from .test_collective_exchange import run, small_buckets  # noqa: F401 - the latter is a fixture

CONTROL = "control"
ONE = np.ones(1, np.float32)
SIZES = {WEIGHTS: 23, STATISTICS: 5, CONTROL: 23}
FURTHER: dict[str, Any] = {"vectors": {CONTROL: "add_mean_update"}, "scalars": {"loss": "mean", "most": "maximum"}}


def values(seed: int) -> dict[str, np.ndarray]:
    """Values of all vectors."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(size).astype(np.float32) for name, size in SIZES.items()}


BEGUN, SENT = values(0), [values(1), values(2)]


def mean(vectors: list[dict[str, np.ndarray]], name: str) -> np.ndarray:
    return np.mean([vector[name] for vector in vectors], axis=0)


def close(held: np.ndarray, expected: Any) -> None:
    np.testing.assert_allclose(held, expected, rtol=1e-5, atol=1e-5)


# --- on servers -----------------------------------------------------------------------------------


def servers_of(workers: int, rule: Rule = add_mean_update, control: Rule = add_mean_update, **options: Any) -> Any:
    further = {CONTROL: (control, BEGUN[CONTROL])}
    return MemoryServers(workers, BEGUN[WEIGHTS], BEGUN[STATISTICS], rule=rule, further=further, **options)


def send(cluster: MemoryServers, rank: int, sequence: int, vectors: dict[str, np.ndarray], **terms: Any) -> None:
    cluster.deliver(*cluster.vectors(rank, sequence, vectors), *cluster.commits(rank, sequence, vectors=SIZES, **terms))


def test_named_vector_has_a_rule_state_of_its_own_and_stays_where_it_is_not_sent() -> None:
    cluster = servers_of(1, sgd, outer_nesterov)
    weights, control, velocity, momentum = BEGUN[WEIGHTS], BEGUN[CONTROL], 0.0, 0.0
    for number, vectors in enumerate(SENT, start=1):
        send(cluster, 0, number, vectors, learning_rate=0.5, momentum=0.9)
        velocity = 0.9 * velocity - 0.5 * vectors[WEIGHTS]
        momentum = 0.9 * momentum + vectors[CONTROL]
        weights, control = weights + velocity, control + 0.5 * (vectors[CONTROL] + 0.9 * momentum)
    close(cluster.weights(), weights)
    close(before := cluster.vector(CONTROL), control)
    cluster.send(0, 3, SENT[0][WEIGHTS])
    assert cluster.vector(CONTROL).tobytes() == before.tobytes()


def test_normalized_weighting_applies_to_weights_only() -> None:
    cluster = servers_of(2, weighting="normalized")
    for rank, samples in enumerate((10, 40)):
        send(cluster, rank, 1, SENT[rank], samples=samples)
    close(cluster.vector(CONTROL), BEGUN[CONTROL] + mean(SENT, CONTROL))
    direction = SENT[0][WEIGHTS] / 10 + SENT[1][WEIGHTS] / 40
    close(cluster.weights(), BEGUN[WEIGHTS] + direction / 2 * 25)


# --- end to end -----------------------------------------------------------------------------------

#: What a worker holds in the end, and the results of its exchanges.
Outcome = tuple[dict[str, np.ndarray], list[Result]]


def take_part(exchange: Any) -> Outcome:
    """Join, then exchange all vectors twice; statistics are sent, and not wanted back."""
    model = Held(SIZES)
    exchange.join(SIZES, Limits(rounds=2), {})
    results = [exchange.begin(sources(values(exchange.rank)), model)]
    initial = model.vectors[STATISTICS].copy()
    assert initial.tobytes() == BEGUN[STATISTICS].tobytes()
    for number in (1, 2):
        sent = sources(values(100 * number + exchange.rank))
        scalars = {"loss": 10.0 * number + exchange.rank, "most": float(exchange.rank)}
        payload = Payload(sent, 1, 0.5, requested=(WEIGHTS, CONTROL), scalars=scalars)
        results.append(exchange.start(payload, model).wait())
    assert model.vectors[STATISTICS].tobytes() == initial.tobytes()
    exchange.close()
    return model.vectors, results


def check(outcomes: list[Outcome], exact: tuple[str, ...] = (WEIGHTS, CONTROL)) -> None:
    """Check that all hold what the rules make of rank 0's first values, and hear of all scalars."""
    expected = dict(BEGUN)
    for number in (1, 2):
        sent = [values(100 * number + rank) for rank in range(len(outcomes))]
        expected[WEIGHTS] = expected[WEIGHTS] - 0.5 * mean(sent, WEIGHTS)
        expected[CONTROL] = expected[CONTROL] + 0.5 * mean(sent, CONTROL)
    for held, results in outcomes:
        for name in exact:
            close(held[name], expected[name])
        assert [result.scalars for result in results] == [{}, {"loss": 11.0, "most": 2.0}, {"loss": 21.0, "most": 2.0}]


def test_named_vector_and_scalars_in_a_collective() -> None:
    check(run(3, take_part, **FURTHER))


def run_over_servers(specification: Specification, workers: int, work: Callable[[ParameterServerExchange], Any]) -> Any:
    """Return what `work` returns for each worker of a job with two servers in memory."""
    cluster = MemoryCluster(workers, random.Random(0).randrange, 2, bucket_elements=4)
    return cluster.run_all(lambda store: work(ParameterServerExchange(specification, store)))


@pytest.mark.parametrize("options", [{}, {"overlap": True}, {"compression": "fp16"}, {"compression": "2bit"}], ids=str)
def test_named_vector_and_scalars_on_servers(options: dict[str, Any]) -> None:
    """Compression applies to weights only."""
    tensors = {"tensors": [23]} if "compression" in options else {}
    outcomes = run_over_servers(Specification("sgd", True, **FURTHER, **options, **tensors), 3, take_part)
    check(outcomes, (CONTROL,) if tensors else (WEIGHTS, CONTROL))


def test_named_vector_and_scalars_in_simulated_collective() -> None:
    engine, hosts, outcomes = SimulationEngine(), [f"host-{rank}" for rank in range(3)], dict[int, Any]()
    shared = SharedCollectiveState(engine, Network(engine, lambda host: Link(1e8, 1e-4), hosts), hosts, "ring")
    specification, prompt = Specification("sgd", True, **FURTHER), Straggler((), lambda: engine.now)
    for rank in range(3):
        exchange = SimulatedCollective(specification, shared, rank, prompt)
        engine.spawn(hosts[rank], lambda rank=rank, exchange=exchange: outcomes.update({rank: take_part(exchange)}))
    engine.run()
    check([outcomes[rank] for rank in range(3)])


@pytest.mark.parametrize("sparse", [False, True])
def test_named_vectors_are_shared_where_weights_are_private(sparse: bool) -> None:
    """Worker 1 also receives what worker 0 has changed in them."""
    differences = {"tensors": [23], "secondary_ratio": 0.5, "dense_below": 0, "values": "float32"}
    rule, options = ("difference", differences) if sparse else ("delay_compensated_sgd", {})
    specification = Specification(rule, False, options, private=True, sparse=sparse, **FURTHER)

    def work(exchange: ParameterServerExchange) -> dict[str, np.ndarray]:
        model = Held(SIZES)
        exchange.join(SIZES, Limits(), {})
        exchange.begin(sources(values(exchange.rank)), model)
        exchange.store.sleep(1.0 + exchange.rank)
        sent = sources(values(10 + exchange.rank))
        if sparse:
            del sent[WEIGHTS]
        step = (np.array([3]), ONE) if sparse else None
        exchange.start(Payload(sent, 1, 0.5, step=step), model).wait()
        exchange.store.sleep(5.0)  # the statistics of a worker that has left no longer count
        exchange.close()
        return model.vectors

    sent = [values(10), values(11)]
    for count, held in enumerate(run_over_servers(specification, 2, work), start=1):
        close(held[CONTROL], BEGUN[CONTROL] + 0.5 * sum(vectors[CONTROL] for vectors in sent[:count]))
        latest = [vectors[STATISTICS] for vectors in (*sent[:count], BEGUN, BEGUN)[:2]]
        close(held[STATISTICS], np.mean(latest, axis=0))
