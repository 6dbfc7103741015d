"""Workers that share a host exchange as one: what servers get, and what every worker then holds."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from esync.exchange import WEIGHTS, Flat, Payload, Specification
from esync.exchange.codecs.base import Encoder
from esync.exchange.codecs.factory import codec_of
from esync.exchange.protocol import wire
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.layout import Layout
from esync.exchange.protocol.round_state import Limits
from esync.exchange.protocol.specification import PerHostError
from esync.exchange.weighting import STATISTICS_WEIGHTINGS, WEIGHTINGS, divisor, factor

from ..support.memory_cluster import MemoryCluster, MemoryStore
from ..support.memory_servers import MemoryServers, Push
from ..support.vectors import SIZES, TENSORS, Held, sources, values
from .store_checks import BUCKET, SERVERS

WORKERS, ROUNDS, RATE = 6, 3, 0.25
#: The workers of a host need not be neighbours.
HOSTS = ((0, 2, 5), (1, 4), (3,))
FLAT = tuple((rank,) for rank in range(WORKERS))
SPECIFICATION = Specification("add_mean_update", True)
#: A further vector, which some specifications have.
CONTROL, CONTROL_SIZE = "control", 23
CODECS: dict[str, dict[str, Any]] = {
    "none": {},
    "fp16": {"compression": "fp16", "tensors": TENSORS},
    "2bit": {"compression": "2bit", "tensors": TENSORS},
}


def samples_of(rank: int) -> int:
    return 1 + 3 * rank


def update(number: int, rank: int) -> dict[str, np.ndarray]:
    """What a worker sends in an exchange, counted from 1."""
    return values(number, rank, 7)


class Run:
    """A training; `models`, the combined `scalars` and `nodes` are as they are at its end.

    Args:
        asked: what the servers are asked for.
        hosts: the ranks on each host; none: nobody exchanges with others.
        seed: of the order in which things happen.
    """

    def __init__(self, asked: Specification, hosts: Sequence[Sequence[int]], seed: int = 0) -> None:
        self.asked, self.models, self.scalars = asked, dict[int, Held](), dict[int, dict[str, float]]()
        self.pushed = dict.fromkeys(range(WORKERS), 0)  # bytes of payloads, by the worker that has sent them
        self.cluster = MemoryCluster(
            WORKERS, random.Random(seed).randrange, SERVERS, bucket_elements=BUCKET, hosts=hosts
        )
        self.cluster.run_all(self._train)
        self.nodes = self.cluster.nodes

    def _train(self, store: MemoryStore) -> None:
        push = store._push

        def count(key: int) -> None:
            array = store._buffers[key]
            self.pushed[store.rank] += array.nbytes * int(wire.header_of(array)["kind"] == wire.PAYLOAD)
            push(key)

        store._push = count
        group = self.cluster.host_group(store)
        sizes = {name: SIZES.get(name, CONTROL_SIZE) for name in self.asked.vectors}
        exchange, model, rank = ParameterServerExchange(self.asked, store, host_group=group), Held(sizes), store.rank
        exchange.join(sizes, Limits(rounds=ROUNDS), {})
        self.layout = exchange.layout
        initial = {**values(0), CONTROL: np.zeros(CONTROL_SIZE, np.float32)}
        result = exchange.begin(sources({name: initial[name] for name in sizes}), model)
        while not result.finished:
            number = exchange.sequence + 1
            control = np.random.default_rng((number, rank)).standard_normal(CONTROL_SIZE).astype(np.float32)
            sent, scalars = (
                {**update(number, rank), CONTROL: control},
                {"loss": float(rank + number), "norm": 1.5 * rank},
            )
            payload = Payload(
                sources({name: sent[name] for name in sizes}),
                samples_of(rank),
                RATE,
                scalars={name: scalars[name] for name in self.asked.scalars},
            )
            result = exchange.start(payload, model).wait()
        self.models[rank], self.scalars[rank] = model, dict(result.scalars)
        exchange.close()

    def held(self, name: str) -> np.ndarray:
        """What the rules of the servers have worked on, of a vector."""
        states = {}
        for node in self.nodes:
            states |= node.endpoint.server.model.buckets
        return np.concatenate([states[bucket.index].weights for bucket in self.layout.of(name)])

    def everything(self) -> list[bytes]:
        """All that servers and workers hold."""
        models = [model.vectors[name].tobytes() for _, model in sorted(self.models.items()) for name in SIZES]
        return [*models, *(self.held(name).tobytes() for name in SIZES)]


class Reference:
    """The documented order of additions, written out: in a host by rank, then by first ranks."""

    def __init__(self, asked: Specification, hosts: Sequence[Sequence[int]]) -> None:
        self.asked, self.hosts = asked, sorted(sorted(ranks) for ranks in hosts)
        self.layout = Layout(SIZES, SERVERS, BUCKET)
        codec = codec_of(asked, self.layout, WORKERS)
        self.encoders = [codec.encoder(ranks[0]) for ranks in self.hosts]
        self.uplinks = [codec.uplink(server) for server in range(SERVERS)]
        self.packs = asked.compression != "none"
        self.vectors = {name: value.copy() for name, value in values(0).items()}
        for number in range(1, ROUNDS + 1):
            self.round(number)

    def round(self, number: int) -> None:
        for name, weighting in self.asked.weightings().items():
            parts = [self.part(host, number, name, weighting) for host in range(len(self.hosts))]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            mean = total / np.float32(divisor(weighting, [samples_of(rank) for rank in range(WORKERS)]))
            self.vectors[name] = self.vectors[name] + np.float32(RATE) * mean if name == WEIGHTS else mean

    def part(self, host: int, number: int, name: str, weighting: str) -> np.ndarray:
        """What a host adds to the sum of a round."""
        ranks, vectors = self.hosts[host], [update(number, rank)[name] for rank in self.hosts[host]]
        factors = [factor(weighting, samples_of(rank)) for rank in ranks]
        total = np.float32(factors[0]) * vectors[0]
        for scale, vector in zip(factors[1:], vectors[1:], strict=True):
            total = total + np.float32(scale) * vector
        if name != WEIGHTS or not self.packs:
            return total
        mean = vectors[0] if len(ranks) == 1 else total / np.float32(sum(factors))
        return np.float32(sum(factors)) * self.unpacked(self.encoders[host], mean)

    def unpacked(self, encoder: Encoder, values: np.ndarray) -> np.ndarray:
        """What arrives of values that a codec packs."""
        buffers: dict[int, np.ndarray] = {}

        def buffer(key: int, elements: int) -> np.ndarray:
            buffers[key] = np.zeros(elements, np.float32)
            return buffers[key]

        packed: list[dict[int, np.ndarray]] = [{} for _ in range(SERVERS)]
        for server, key, place in encoder.write(Flat(values), buffer):
            packed[server][place] = buffers[key]
        result = np.zeros(SIZES[WEIGHTS], np.float32)

        def target(index: int, size: int) -> tuple[np.ndarray, bool]:
            bucket = self.layout.buckets[index]
            return result[bucket.start : bucket.stop], True

        for server, uplink in enumerate(self.uplinks):
            uplink.add(packed[server], target, 1.0)
        return result


@pytest.mark.parametrize(
    ("hosts", "codec", "terms"),
    [
        *(
            (HOSTS, codec, {"weighting": weighting})
            for codec in CODECS
            for weighting in WEIGHTINGS
            if weighting != "uniform"
        ),
        (HOSTS, "none", {"overlap": True}),
        (HOSTS, "2bit", {"weighting": "samples", "overlap": True}),
        (FLAT, "fp16", {"weighting": "samples"}),
        *((HOSTS, "none", {"statistics_weighting": weighting}) for weighting in STATISTICS_WEIGHTINGS),
    ],
)
def test_hosts_sum_of_a_round_is_added_by_rank_and_then_by_first_ranks(
    hosts: Sequence[Sequence[int]], codec: str, terms: dict[str, Any]
) -> None:
    asked = replace(SPECIFICATION, **terms, **CODECS[codec])
    run, reference = Run(asked, hosts), Reference(asked, hosts)
    for name in SIZES:
        assert run.held(name).tobytes() == reference.vectors[name].tobytes()
    assert len({model.weights.tobytes() for model in run.models.values()}) == 1


def test_hosts_of_one_worker_exchange_bit_for_bit_as_without_hosts() -> None:
    alone, without = Run(SPECIFICATION, FLAT), Run(SPECIFICATION, ())
    assert alone.everything() == without.everything()
    assert (alone.pushed, alone.cluster.history) == (without.pushed, without.cluster.history)


def test_hosts_send_one_payload_each() -> None:
    once = Run(SPECIFICATION, ()).pushed[0]
    together = Run(SPECIFICATION, HOSTS)
    assert [sum(together.pushed[rank] for rank in ranks) for ranks in HOSTS] == [once] * len(HOSTS)


@pytest.mark.parametrize("seed", range(4))
def test_hosts_round_does_not_depend_on_the_order_of_events(seed: int) -> None:
    assert Run(SPECIFICATION, HOSTS, seed).everything() == Run(SPECIFICATION, HOSTS, 99).everything()


@pytest.mark.parametrize(
    ("terms", "message"),
    [({"staleness": 2.0}, "mode ssp"), ({"private": True}, "mode dcasgd"), ({"sparse": True}, "sparse messages")],
)
def test_hosts_with_exchanges_without_rounds_are_refused_by_name(terms: dict[str, Any], message: str) -> None:
    with pytest.raises(PerHostError, match=message):
        Specification("sgd", False, per_host=2, **terms)


def test_hosts_with_payloads_used_at_once_are_refused_by_name() -> None:
    with pytest.raises(PerHostError, match="used at once"):
        Run(Specification("sgd", False), HOSTS)


# --- what a server takes --------------------------------------------------------------------------


def group_commit(servers: MemoryServers, ranks: Sequence[int], **changed: Any) -> Push:
    """The commits of these workers' first exchange, sent by the first of them, for server 0."""
    owner, *members = (
        wire.message(
            wire.MEMBER if place else wire.COMMIT,
            rank=rank,
            nonce=1000 + rank,
            sequence=1,
            learning_rate=1.0,
            samples=1,
            buckets=0 if place else 1,
            round=1,
        )
        for place, rank in enumerate(ranks)
    )
    for name, value in changed.items():
        members[-1][name] = value
    elements = wire.message_elements(servers.workers, per_host=len(ranks))
    return Push(0, servers.layout.status_key(0), wire.pack(owner, elements, members))


def crowd() -> MemoryServers:
    """One server of three workers, and weights of two zeros."""
    return MemoryServers(3, [0.0, 0.0])


def test_server_counts_a_group_as_all_its_workers() -> None:
    servers = crowd()
    servers.deliver(*servers.buckets(1, 1, [3.0, 6.0]), group_commit(servers, [1, 0]))
    assert servers.status()["committed"].tolist() == [1, 1, 0]
    servers.send(2, 1, np.array([3.0, 0.0]))
    assert servers.status()["acknowledged"].tolist() == [1, 1, 1]
    assert servers.weights().tolist() == [-2.0, -2.0]


@pytest.mark.parametrize(("changed", "dropped"), [({"nonce": 7}, ()), ({"sequence": 0}, ()), ({}, (0,))])
def test_server_with_a_group_that_does_not_fit_counts_nobody(changed: dict[str, Any], dropped: tuple[int, ...]) -> None:
    servers = crowd()
    for rank in dropped:
        servers.drop(rank)
    servers.deliver(*servers.buckets(1, 1, [3.0, 6.0]), group_commit(servers, [1, 0], **changed))
    assert not servers.status()["committed"].any()
    assert servers.memories[0].staged_bytes == 0


def test_server_refuses_a_group_of_which_one_has_committed_by_itself() -> None:
    servers = crowd()
    servers.send(0, 1, np.array([3.0, 0.0]), round=1)
    servers.deliver(*servers.buckets(1, 1, [99.0, 99.0]), group_commit(servers, [1, 0]))
    assert servers.status()["committed"].tolist() == [1, 0, 0]
    for rank in (1, 2):
        servers.send(rank, 1, np.array([3.0, 0.0]), round=1)
    assert servers.weights().tolist() == [-3.0, 0.0]


def test_server_with_a_worker_counted_in_its_group_ignores_its_own_commit() -> None:
    servers = crowd()
    servers.deliver(*servers.buckets(1, 1, [6.0, 0.0]), group_commit(servers, [1, 0]))
    servers.send(0, 1, np.array([99.0, 99.0]), round=1)
    servers.send(2, 1, np.array([3.0, 0.0]), round=1)
    assert servers.weights().tolist() == [-3.0, 0.0]


def test_server_does_not_mix_the_arrays_of_two_attempts() -> None:
    servers = MemoryServers(1, [0.0] * 8)  # two buckets
    first, second = servers.buckets(0, 1, [9.0] * 8), servers.buckets(0, 1, [1.0] * 8)
    for push in second:
        wire.header_of(push.values)["index"] = 1
    servers.deliver(first[0], second[0], first[1])
    message = wire.message(
        wire.COMMIT, rank=0, nonce=1000, sequence=1, learning_rate=1.0, samples=1, buckets=2, index=1
    )
    servers.deliver(Push(0, servers.layout.status_key(0), wire.pack(message, servers.elements)))
    assert servers.status()["acknowledged"].tolist() == [0]
    servers.deliver(second[1])
    assert servers.status()["acknowledged"].tolist() == [1]
    assert servers.weights().tolist() == [-1.0] * 8


def test_hosts_further_vectors_and_scalars_are_as_those_of_single_workers() -> None:
    asked = replace(
        SPECIFICATION, vectors={CONTROL: "add_mean_update"}, scalars={"loss": "mean", "norm": "sum"}, overlap=False
    )
    together, alone = Run(asked, HOSTS), Run(asked, ())
    assert np.any(alone.models[0].vectors[CONTROL])
    for rank in range(WORKERS):
        vector, expected = together.models[rank].vectors[CONTROL], alone.models[0].vectors[CONTROL]
        np.testing.assert_allclose(vector, expected, rtol=1e-5, atol=1e-6)
        assert together.scalars[rank] == together.scalars[0] == pytest.approx(alone.scalars[0])
    assert together.scalars[0]["norm"] == pytest.approx(1.5 * sum(range(WORKERS)))
