"""A vector beside weights and statistics with a rule of its own, on servers and in collectives."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from esync.exchange import STATISTICS, WEIGHTS, Payload, Specification
from esync.exchange.codecs.uncompressed import UncompressedDownlink, UncompressedUplink
from esync.exchange.collectives.engine import CollectiveEngine
from esync.exchange.collectives.memory import MemoryNetwork
from esync.exchange.collectives.worker_exchange import CollectiveExchange
from esync.exchange.protocol import wire
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.endpoint import serve
from esync.exchange.protocol.handshake import Handshake
from esync.exchange.protocol.layout import Layout
from esync.exchange.protocol.parameter_server import ParameterServer
from esync.exchange.protocol.round_state import Limits, RoundState
from esync.rules import add_mean_update, outer_nesterov, sgd
from esync.runtime.straggler_injection import Straggler
from esync.runtime.watchdog import Watchdog
from esync.simulate.cluster_state import ClusterState
from esync.simulate.collective import SharedCollectiveState, SimulatedCollective
from esync.simulate.engine import SimulationEngine as Time
from esync.simulate.network import Link, Network
from esync.simulate.servers import ServerModel, ServerNode
from esync.simulate.store import VirtualStore

from .memory_servers import MemoryServers
from .test_collective_exchange import small_buckets  # noqa: F401 - a fixture
from .vectors import sources

CONTROL = "control"
ONE = np.ones(1, np.float32)
SIZES = {WEIGHTS: 23, STATISTICS: 5, CONTROL: 23}
WITH_CONTROL = Specification("sgd", True, vectors={CONTROL: "add_mean_update"})


def values(seed: int) -> dict[str, np.ndarray]:
    """Values of all vectors."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(size).astype(np.float32) for name, size in SIZES.items()}


def mean(vectors: list[dict[str, np.ndarray]], name: str) -> np.ndarray:
    return np.mean([each[name] for each in vectors], axis=0)


class Model:
    """Keeps what is written; `written` has the names of what has been."""

    def __init__(self, held: Mapping[str, np.ndarray]) -> None:
        self.held = {name: each.copy() for name, each in held.items()}
        self.written: set[str] = set()

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        self.written.add(vector)
        self.held[vector][start : start + values.size] = values

    def add(self, step: Any) -> None:
        self.held[WEIGHTS][step[0]] += step[1]

    def put(self, step: Any) -> None:
        raise NotImplementedError


# --- on servers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 3])
def test_named_vector_round_applies_its_rule_to_its_mean(servers: int) -> None:
    begun, sent = values(0), [values(1), values(2)]
    cluster = MemoryServers(
        2,
        begun[WEIGHTS],
        begun[STATISTICS],
        servers=servers,
        rule=sgd,
        further={CONTROL: (add_mean_update, begun[CONTROL])},
    )
    for rank in (1, 0):
        cluster.deliver(
            *cluster.vectors(rank, 1, sent[rank]), *cluster.commits(rank, 1, vectors=SIZES, learning_rate=0.5)
        )
    np.testing.assert_allclose(cluster.weights(), begun[WEIGHTS] - 0.5 * mean(sent, WEIGHTS), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cluster.statistics(), mean(sent, STATISTICS), rtol=1e-5, atol=1e-6)
    expected = begun[CONTROL] + 0.5 * mean(sent, CONTROL)
    np.testing.assert_allclose(cluster.vector(CONTROL), expected, rtol=1e-5, atol=1e-6)


def test_named_vector_has_a_rule_state_of_its_own() -> None:
    begun, sent = values(0), [values(1), values(2)]
    cluster = MemoryServers(
        1, begun[WEIGHTS], begun[STATISTICS], rule=sgd, further={CONTROL: (outer_nesterov, begun[CONTROL])}
    )
    weights, control, velocity, momentum = begun[WEIGHTS], begun[CONTROL], 0.0, 0.0
    for number, each in enumerate(sent, start=1):
        terms = {"learning_rate": 0.5, "momentum": 0.9}
        cluster.deliver(*cluster.vectors(0, number, each), *cluster.commits(0, number, vectors=SIZES, **terms))
        velocity = 0.9 * velocity - 0.5 * each[WEIGHTS]
        momentum = 0.9 * momentum + each[CONTROL]
        weights, control = weights + velocity, control + 0.5 * (each[CONTROL] + 0.9 * momentum)
    np.testing.assert_allclose(cluster.weights(), weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cluster.vector(CONTROL), control, rtol=1e-5, atol=1e-6)


def test_named_vector_that_is_not_sent_stays() -> None:
    begun = values(0)
    cluster = MemoryServers(1, begun[WEIGHTS], begun[STATISTICS], further={CONTROL: (add_mean_update, begun[CONTROL])})
    cluster.send(0, 1, values(1)[WEIGHTS])
    assert cluster.vector(CONTROL).tobytes() == begun[CONTROL].tobytes()


def test_named_vector_in_asynchronous_mode_changes_at_once_and_is_shared() -> None:
    begun, sent = values(0), [values(1), values(2)]
    cluster = MemoryServers(
        2,
        begun[WEIGHTS],
        begun[STATISTICS],
        synchronous=False,
        private=True,
        further={CONTROL: (add_mean_update, begun[CONTROL])},
    )
    for rank in (0, 1):
        cluster.deliver(*cluster.vectors(rank, 1, sent[rank]), *cluster.commits(rank, 1, vectors=SIZES))
        expected = begun[CONTROL] + sum(each[CONTROL] for each in sent[: rank + 1])
        np.testing.assert_allclose(cluster.vector(CONTROL), expected, rtol=1e-5, atol=1e-6)
    assert cluster.weights(1).tobytes() != cluster.weights(2).tobytes() == cluster.weights().tobytes()


def test_normalized_weighting_applies_to_weights_only() -> None:
    begun, sent, samples = values(0), [values(1), values(2)], (10, 40)
    cluster = MemoryServers(
        2,
        begun[WEIGHTS],
        begun[STATISTICS],
        rule=add_mean_update,
        weighting="normalized",
        further={CONTROL: (add_mean_update, begun[CONTROL])},
    )
    for rank in (0, 1):
        commits = cluster.commits(rank, 1, vectors=SIZES, samples=samples[rank])
        cluster.deliver(*cluster.vectors(rank, 1, sent[rank]), *commits)
    np.testing.assert_allclose(cluster.vector(CONTROL), begun[CONTROL] + mean(sent, CONTROL), rtol=1e-5, atol=1e-6)
    direction = sent[0][WEIGHTS] / 10 + sent[1][WEIGHTS] / 40
    np.testing.assert_allclose(cluster.weights(), begun[WEIGHTS] + direction / 2 * 25, rtol=1e-5, atol=1e-5)


def test_rule_step_knows_number_of_commits_and_slots() -> None:
    told = []

    def note(weights: Any, value: Any, state: Any, step: Any) -> Any:
        told.append((step.count, step.workers))
        return weights + value, state

    cluster = MemoryServers(3, [0.0], further={CONTROL: (note, np.zeros(1, np.float32))})
    cluster.nodes[0].server.drop(2)
    for rank in (0, 1):
        cluster.deliver(
            *cluster.vectors(rank, 1, {WEIGHTS: [1.0], CONTROL: [1.0]}), *cluster.commits(rank, 1, vectors=SIZES)
        )
    cluster.deliver(
        *cluster.vectors(0, 2, {WEIGHTS: [1.0], CONTROL: [1.0]}),
        *cluster.commits(0, 2, vectors=SIZES, use=wire.AT_ONCE),
    )
    assert told == [(2, 3), (1, 3)]


@pytest.mark.parametrize("compression", ["none", "fp16", "2bit"])
def test_compression_applies_to_weights_only(compression: str) -> None:
    """The server comes from the handshake, however the weights are packed."""
    handshake = Handshake(
        rank=0,
        nonce=1000,
        slots=1,
        sizes=SIZES,
        servers=1,
        bucket_elements=4,
        specification=Specification(
            "add_mean_update", True, compression=compression, tensors=[23], vectors={CONTROL: "add_mean_update"}
        ),
    )
    begun, sent = values(0), values(1)
    server, stored = serve(Handshake.decode(handshake.encode()), 0, lambda: 0.0), {}
    layout = handshake.layout()

    def push(key: int, array: np.ndarray) -> None:
        if key in stored:
            server.push(key, array.copy(), stored[key])
        else:
            stored[key] = array.copy()

    def push_buckets(held: Mapping[str, np.ndarray], kind: int, sequence: int) -> int:
        buckets = [bucket for bucket in layout.buckets if bucket.vector in held]
        for bucket in buckets:
            array = np.zeros(wire.HEADER_ELEMENTS + bucket.stop - bucket.start, np.float32)
            wire.stamp(array, kind, 0, 1000, sequence, bucket.index)
            array[wire.HEADER_ELEMENTS :] = held[bucket.vector][bucket.start : bucket.stop]
            push(layout.key(bucket), array)
        return len(buckets)

    def say(kind: int, sequence: int, **fields: Any) -> None:
        record = wire.message(kind, rank=0, nonce=1000, sequence=sequence, **fields)
        push(0, wire.pack(record, wire.message_elements(1)))

    say(wire.NOTHING, 0)
    server.join(0, 1000)
    push_buckets(begun, wire.NOTHING, 0)
    push_buckets(begun, wire.NOTHING, 0)
    others = {name: each for name, each in sent.items() if name != WEIGHTS}
    buckets = push_buckets(others, wire.PAYLOAD, 1)
    say(wire.COMMIT, 1, buckets=buckets, samples=1, learning_rate=1.0)
    assert server.round_state.round == 1
    for name, expected in ((CONTROL, begun[CONTROL] + sent[CONTROL]), (STATISTICS, sent[STATISTICS])):
        held = [
            stored[layout.key(bucket)][wire.HEADER_ELEMENTS :] for bucket in layout.buckets if bucket.vector == name
        ]
        np.testing.assert_allclose(np.concatenate(held), expected, rtol=1e-5, atol=1e-6)


def test_named_vector_without_rule_is_refused() -> None:
    layout = Layout({WEIGHTS: 1, CONTROL: 1}, 1)
    with pytest.raises(ValueError, match="control"):
        ParameterServer(
            layout, RoundState(1, True), UncompressedUplink(), UncompressedDownlink(False), {WEIGHTS: sgd}, lambda: 0.0
        )


# --- end to end -----------------------------------------------------------------------------------


def take_part(exchange: Any, rounds: int) -> Model:
    """Join, then exchange all vectors; statistics are sent, and not wanted back."""
    model = Model(values(exchange.rank))
    exchange.join(SIZES, Limits(rounds=rounds), {})
    exchange.begin(sources(values(exchange.rank)), model)
    assert model.written == set(SIZES)
    for number in range(1, rounds + 1):
        sent = values(100 * number + exchange.rank)
        model.written.clear()
        exchange.start(Payload(sources(sent), 1, 0.5, wanted=(WEIGHTS, CONTROL)), model).wait()
        assert model.written == {WEIGHTS, CONTROL}
    exchange.close()
    return model


def check(models: list[Model], rounds: int) -> None:
    """All hold what the rules make of rank 0's first values."""
    expected = values(0)
    for number in range(1, rounds + 1):
        sent = [values(100 * number + rank) for rank in range(len(models))]
        expected[WEIGHTS] = expected[WEIGHTS] - 0.5 * mean(sent, WEIGHTS)
        expected[CONTROL] = expected[CONTROL] + 0.5 * mean(sent, CONTROL)
    for model in models:
        for name, each in expected.items():
            np.testing.assert_allclose(model.held[name], each, rtol=1e-5, atol=1e-5)


def test_named_vector_in_a_collective_follows_its_rule() -> None:
    network, models = MemoryNetwork(3), [Model({})] * 3

    def work(rank: int) -> None:
        exchange = CollectiveExchange(
            WITH_CONTROL, CollectiveEngine("ring", network.transports[rank]), Watchdog(), 20, 20
        )
        models[rank] = take_part(exchange, 2)

    threads = [threading.Thread(target=work, args=[rank], daemon=True) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    check(models, 2)


def simulated(make: Callable[[Time, Network, int], Any]) -> list[Model]:
    """The models of three workers in virtual time; `make` makes the exchange of each."""
    engine = Time()
    network = Network(engine, lambda host: Link(1e8, 1e-4), ["server"])
    models: list[Model] = [Model({})] * 3

    def live(rank: int) -> None:
        models[rank] = take_part(make(engine, network, rank), 2)

    for rank in range(3):
        engine.spawn(f"worker {rank}", lambda rank=rank: live(rank))
    engine.run()
    return models


@pytest.mark.parametrize("overlap", [False, True])
def test_named_vector_on_simulated_servers_follows_its_rule(overlap: bool) -> None:
    sides: list[ClusterState] = []

    def make(engine: Time, network: Network, rank: int) -> ParameterServerExchange:
        if not sides:
            nodes = [ServerNode(engine, ServerModel("server"), shard) for shard in range(2)]
            sides.append(ClusterState(engine, network, nodes, 3, bucket_elements=4))
        specification = Specification("sgd", True, vectors={CONTROL: "add_mean_update"}, overlap=overlap)
        return ParameterServerExchange(specification, VirtualStore(sides[0], f"host-{rank}", rank, rank))

    check(simulated(make), 2)


def test_named_vector_in_simulated_collective_follows_its_rule() -> None:
    sides: list[SharedCollectiveState] = []

    def make(engine: Time, network: Network, rank: int) -> SimulatedCollective:
        if not sides:
            sides.append(SharedCollectiveState(engine, network, [f"host-{rank}" for rank in range(3)], "ring"))
        return SimulatedCollective(WITH_CONTROL, sides[0], rank, Straggler((), lambda: engine.now))

    check(simulated(make), 2)


@pytest.mark.parametrize("sparse", [False, True])
def test_named_vectors_are_shared_where_weights_are_private(sparse: bool) -> None:
    """Worker 1 also receives what worker 0 has changed in them."""
    engine = Time()
    network = Network(engine, lambda host: Link(1e8, 1e-4), ["server"])
    nodes = [ServerNode(engine, ServerModel("server"), shard) for shard in range(2)]
    side = ClusterState(engine, network, nodes, 2, bucket_elements=4)
    differences = {"tensors": [23], "secondary_ratio": 0.5, "dense_below": 0, "values": "float32"}
    specification = Specification(
        "difference" if sparse else "delay_compensated_sgd",
        False,
        differences if sparse else {},
        private=True,
        sparse=sparse,
        vectors={CONTROL: "add_mean_update"},
    )
    models = [Model(values(rank)) for rank in range(2)]

    def live(rank: int) -> None:
        exchange = ParameterServerExchange(specification, VirtualStore(side, f"host-{rank}", rank, rank))
        exchange.join(SIZES, Limits(), {})
        exchange.begin(sources(values(rank)), models[rank])
        engine.pass_time(1.0 + rank)
        sent = values(10 + rank)
        if sparse:
            del sent[WEIGHTS]
        step = (np.array([3]), ONE) if sparse else None
        exchange.start(Payload(sources(sent), 1, 0.5, step=step), models[rank]).wait()
        engine.pass_time(5.0)  # the statistics of a worker that has left no longer count
        exchange.close()

    for rank in range(2):
        engine.spawn(f"worker {rank}", lambda rank=rank: live(rank))
    engine.run()
    begun, sent = values(0), [values(10), values(11)]
    for model, count in zip(models, (1, 2), strict=True):
        control = begun[CONTROL] + 0.5 * sum(each[CONTROL] for each in sent[:count])
        np.testing.assert_allclose(model.held[CONTROL], control, rtol=1e-5, atol=1e-5)
        latest = [each[STATISTICS] for each in (*sent[:count], begun, begun)[:2]]
        np.testing.assert_allclose(model.held[STATISTICS], np.mean(latest, axis=0), rtol=1e-5, atol=1e-5)
