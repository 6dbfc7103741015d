"""A parameter server with every pair of uplink and downlink codecs; pairs that do not fit are
refused.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from esync.exchange import STATISTICS, WEIGHTS, Flat
from esync.exchange.codecs.base import WorkerCodec
from esync.exchange.codecs.factory import Way, make_codecs
from esync.exchange.codecs.quantization import Compression
from esync.exchange.codecs.sparse import Differences, Sparse
from esync.exchange.protocol import wire
from esync.exchange.protocol.layout import Layout
from esync.exchange.protocol.parameter_server import ParameterServer
from esync.exchange.protocol.round_state import RoundState
from esync.rules import DelayCompensatedSGDRule, Rule, add_mean_update, replace_by_mean, sgd

TENSORS = [70, 1, 45]
SIZE, WORKERS = sum(TENSORS), 3
WAYS: dict[str, Way] = {
    "none": Compression(),
    "fp16": Compression.parse("fp16"),
    "2bit": Compression.parse("2bit"),
    "topk": Compression.parse("topk:0.1"),
    "sparse": Differences(),
    "sparse, secondary": Differences(secondary_ratio=0.2),
    "sparse, float16": Differences(values="float16"),
}
VECTORS = ["none", "fp16", "2bit", "topk"]
SPARSE = [name for name in WAYS if name not in VECTORS]


class Cluster:
    """Two servers, with a dict in the place of the key store.

    Like that, it stores the first value of a key unseen.
    """

    def __init__(
        self, up: str, down: str, *, synchronous: bool = True, private: bool = False, rule: Rule = add_mean_update
    ) -> None:
        self.layout = Layout({WEIGHTS: SIZE, STATISTICS: 2}, 2, 32)
        self.codecs = make_codecs(WAYS[up], WAYS[down], self.layout, WORKERS, TENSORS, private)
        rules: dict[str, Rule] = {WEIGHTS: rule, STATISTICS: replace_by_mean}
        self.servers = [
            ParameterServer(
                self.layout,
                RoundState(WORKERS, synchronous),
                self.codecs[0].uplink(server),
                self.codecs[1].downlink(server),
                rules,
                lambda: 0.0,
            )
            for server in range(2)
        ]
        self.stored: dict[int, np.ndarray] = {}
        self.elements = wire.message_elements(WORKERS)
        for server in range(2):
            self.push(server, server, np.zeros(self.elements, np.float32))
        begun = np.random.default_rng(0).standard_normal(SIZE + 2).astype(np.float32)
        self.fill(0, begun)
        self.workers = [Worker(self, rank, private or down in SPARSE) for rank in range(WORKERS)]

    def push(self, server: int, key: int, values: np.ndarray) -> None:
        if key not in self.stored:
            self.stored[key] = values.copy()
        else:
            self.servers[server].push(key, values.copy(), self.stored[key])

    def open(self, server: int, key: int, elements: int) -> None:
        """Show a server where a key is stored."""
        while key not in self.stored:
            self.push(server, key, np.zeros(wire.HEADER_ELEMENTS + elements, np.float32))

    def fill(self, channel: int, values: np.ndarray) -> None:
        """Set the keys of a channel up."""
        for bucket in self.layout.buckets:
            if channel and bucket.vector != WEIGHTS:
                continue
            first = bucket.start if bucket.vector == WEIGHTS else SIZE + bucket.start
            array = np.zeros(wire.HEADER_ELEMENTS + bucket.stop - bucket.start, np.float32)
            array[wire.HEADER_ELEMENTS :] = values[first : first + bucket.stop - bucket.start]
            for _ in range(2):
                self.push(bucket.shard, self.layout.key(bucket, channel), array)

    def pulled(self, vector: str = WEIGHTS) -> np.ndarray:
        """What a worker that comes now gets."""
        buckets = [bucket for bucket in self.layout.buckets if bucket.vector == vector]
        return np.concatenate([self.stored[self.layout.key(bucket)][wire.HEADER_ELEMENTS :] for bucket in buckets])

    def status(self, server: int) -> np.void:
        return wire.unpack(self.stored[server], wire.status_type(WORKERS))


class Worker:
    """One worker; `weights` are those that it has."""

    def __init__(self, cluster: Cluster, rank: int, own: bool) -> None:
        self.cluster, self.rank, self.sequence = cluster, rank, 0
        for server in cluster.servers:
            server.join(rank, 1000 + rank)
        self.weights = cluster.pulled()
        if own:
            cluster.fill(rank + 1, self.weights)
        up, down = cluster.codecs
        self.codec = WorkerCodec(up.encoder(rank), down.decoder(rank))
        buckets = [bucket for bucket in cluster.layout.buckets if bucket.vector == WEIGHTS]
        common = {bucket.index: self.weights[bucket.start : bucket.stop].copy() for bucket in buckets}
        steps = {bucket.index: cluster.servers[bucket.shard].round_state.step for bucket in buckets}
        self.codec.decoder.begin(common, steps)

    def send(self, update: np.ndarray | Sparse, statistics: float) -> None:
        """Push a payload and its commits."""
        self.sequence += 1
        cluster, buffers = self.cluster, dict[int, np.ndarray]()
        pushed = [0, 0]

        def buffer(key: int, elements: int) -> np.ndarray:
            buffers[key] = np.zeros(wire.HEADER_ELEMENTS + elements, np.float32)
            return buffers[key][wire.HEADER_ELEMENTS :]

        def push(server: int, key: int, place: int) -> None:
            cluster.open(server, key, buffers[key].size - wire.HEADER_ELEMENTS)
            wire.stamp(buffers[key], wire.PAYLOAD, self.rank, 1000 + self.rank, self.sequence, place)
            cluster.push(server, key, buffers[key])
            pushed[server] += 1

        for packed in self.codec.encoder.write(update if isinstance(update, tuple) else Flat(update), buffer):
            push(*packed)
        for bucket in cluster.layout.buckets:
            if bucket.vector == STATISTICS:
                key = cluster.layout.key(bucket)
                buffer(key, bucket.stop - bucket.start).fill(statistics)
                push(bucket.shard, key, bucket.index)
        for server in range(2):
            terms = {"sequence": self.sequence, "samples": 1, "buckets": pushed[server], "learning_rate": 1.0}
            record = wire.message(wire.COMMIT, rank=self.rank, nonce=1000 + self.rank, **terms)
            cluster.push(server, server, wire.pack(record, cluster.elements))

    def fetch(self) -> None:
        """Take the answers."""
        for server in range(2):
            status = self.cluster.status(server)
            assert status["acknowledged"][self.rank] == self.sequence, status["text"]
            length = int(status["answer"][self.rank])
            arrays = []
            for key, elements in self.codec.decoder.wanted(server, length):
                self.cluster.open(server, key, elements)
                self.announce(server, key, elements)
                arrays.append(self.cluster.stored[key].copy())
            self.codec.decoder.read(server, arrays, length, self)

    def announce(self, server: int, key: int, elements: int) -> None:
        """As a worker does before it pulls a key for the first time."""
        downlink = self.cluster.servers[server].downlink
        if downlink.holds(key):
            array = np.zeros(wire.HEADER_ELEMENTS + elements, np.float32)
            wire.stamp(array, wire.NOTHING, self.rank, 1000 + self.rank, self.sequence, 0)
            self.cluster.push(server, key, array)

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        assert vector == WEIGHTS
        self.weights[start : start + values.size] = values

    def add(self, step: Sparse) -> None:
        self.weights[step[0]] += step[1]

    def put(self, step: Sparse) -> None:
        self.weights[step[0]] = step[1]


def updates(seed: int, workers: int = WORKERS) -> list[np.ndarray]:
    return [(0.1 * row).astype(np.float32) for row in np.random.default_rng(seed).standard_normal((workers, SIZE))]


def a_round(cluster: Cluster, sent: Sequence[np.ndarray]) -> None:
    for worker, update in zip(cluster.workers, sent, strict=True):
        worker.send(update, statistics=worker.rank)
    for worker in cluster.workers:
        worker.fetch()


@pytest.mark.parametrize("down", VECTORS)
@pytest.mark.parametrize("up", VECTORS)
def test_codec_pair_in_rounds_loses_nothing_and_keeps_workers_identical(up: str, down: str) -> None:
    cluster = Cluster(up, down)
    begun, given = cluster.pulled().astype(np.float64), np.zeros(SIZE)
    for seed in range(5):
        sent = updates(seed)
        given += np.mean(sent, axis=0)
        a_round(cluster, sent)
        for worker in cluster.workers:
            assert worker.weights.tobytes() == cluster.pulled().tobytes()
        assert cluster.pulled(STATISTICS).tolist() == [1, 1]
    for _ in range(200):  # what has not been said yet, on either side, comes with the next messages
        a_round(cluster, [np.zeros(SIZE, np.float32)] * WORKERS)
    np.testing.assert_allclose(cluster.pulled(), begun + given, atol=2e-3)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("up", VECTORS)
def test_codec_pair_with_plain_downlink_applies_each_commit_at_once(up: str, private: bool) -> None:
    rule = DelayCompensatedSGDRule(0.0) if private else sgd
    cluster = Cluster(up, "none", synchronous=False, private=private, rule=rule)
    expected = cluster.pulled()
    for seed, worker in enumerate(cluster.workers * 2):
        (update,) = updates(seed, workers=1)
        rest = getattr(worker.codec.encoder, "rest", np.zeros(SIZE, np.float32)).copy()
        worker.send(update, statistics=worker.rank)
        left = getattr(worker.codec.encoder, "rest", np.zeros(SIZE, np.float32))
        expected = expected - (rest + update - left)
        worker.fetch()
        assert worker.weights.tobytes() == cluster.pulled().tobytes()
        np.testing.assert_allclose(worker.weights, expected, atol=1e-6)
    assert cluster.pulled(STATISTICS).tolist() == [1, 1]


@pytest.mark.parametrize("private", [False, True])
def test_plain_private_downlink_keeps_what_the_worker_was_sent_last(private: bool) -> None:
    cluster = Cluster("fp16", "none", synchronous=False, private=private)
    first, second, _ = cluster.workers
    first.send(updates(1, workers=1)[0], 0)
    first.fetch()
    held = second.weights.copy()
    second.fetch()
    assert (second.weights.tobytes() == held.tobytes()) == private


@pytest.mark.parametrize("down", [*SPARSE, "none"])
@pytest.mark.parametrize("up", SPARSE)
def test_sparse_uplink_applies_each_step_at_once(up: str, down: str) -> None:
    cluster = Cluster(up, down, synchronous=False)
    expected = cluster.pulled()
    for seed, worker in enumerate(cluster.workers * 3):
        values = updates(seed, workers=1)[0].astype(np.float16).astype(np.float32)
        places = np.arange(seed % 4, SIZE, 4)
        worker.send((places, values[places]), statistics=worker.rank)
        worker.fetch()
        expected[places] -= values[places]
        assert cluster.pulled().tobytes() == expected.tobytes()
        if down in ("none", "sparse"):
            assert worker.weights.tobytes() == expected.tobytes()
    for _ in range(60):  # what was held back, or rounded
        for worker in cluster.workers:
            worker.send((np.empty(0, np.int64), np.empty(0, np.float32)), statistics=worker.rank)
            worker.fetch()
    for worker in cluster.workers:
        np.testing.assert_allclose(worker.weights, expected, rtol=1e-3, atol=1e-5)
    assert cluster.pulled(STATISTICS).tolist() == [1, 1]


@pytest.mark.parametrize("down", [*SPARSE, "none"])
def test_sparse_uplink_in_rounds_is_refused(down: str) -> None:
    with pytest.raises(ValueError, match="uplink codec 'sparse difference' has no use for rounds"):
        Cluster("sparse", down, synchronous=True)


@pytest.mark.parametrize("synchronous", [False, True])
@pytest.mark.parametrize("up", VECTORS)
def test_sparse_downlink_with_vector_uplink_is_refused(up: str, synchronous: bool) -> None:
    name = WAYS[up]
    with pytest.raises(ValueError, match=f"downlink codec 'sparse difference' .* the uplink codec '{name}'"):
        Cluster(up, "sparse", synchronous=synchronous)


@pytest.mark.parametrize("down", ["fp16", "2bit", "topk"])
@pytest.mark.parametrize("up", [*VECTORS, "sparse"])
def test_shared_downlink_without_rounds_is_refused(up: str, down: str) -> None:
    with pytest.raises(ValueError, match=f"downlink codec '{WAYS[down]}' needs rounds"):
        Cluster(up, down, synchronous=False)


@pytest.mark.parametrize(
    ("up", "values"), [("sparse", np.zeros(SIZE, np.float32)), ("fp16", (np.arange(2), np.ones(2)))]
)
def test_codec_with_payload_of_wrong_kind_names_itself(up: str, values: np.ndarray | Sparse) -> None:
    cluster = Cluster(up, "none", synchronous=False)
    with pytest.raises(TypeError, match=f"the codec '{cluster.codecs[0].name}' packs"):
        cluster.workers[0].send(values, 0)


@pytest.mark.parametrize("name", VECTORS)
def test_codec_sizes_are_known_without_values(name: str) -> None:
    """Exact for buckets (2bit as if each bucket were one tensor), upper limits for top-k."""
    layout = Layout({WEIGHTS: 5000}, 2, 1024)
    codec, _ = make_codecs(WAYS[name], WAYS[name], layout, WORKERS, [5000])
    encoder, decoder = codec.encoder(0), codec.decoder(0)
    sizes = {server: sorted(encoder.sizes(server)) for server in range(2)}
    written: dict[int, list[int]] = {0: [], 1: []}
    buffers: dict[int, int] = {}

    def buffer(key: int, elements: int) -> np.ndarray:
        buffers[key] = elements
        return np.empty(elements, np.float32)

    for packed in encoder.write(Flat(np.random.default_rng(1).standard_normal(5000).astype(np.float32)), buffer):
        written[packed.shard].append(buffers[packed.key])
    for server in range(2):
        if name == "topk":
            assert 0 < sum(written[server]) <= sum(sizes[server]) < 2500
            assert sum(decoder.answer_sizes(server)) > sum(sizes[server])
        else:
            assert sorted(written[server]) == sizes[server] == sorted(decoder.answer_sizes(server))
            assert sorted(size for _, size in decoder.wanted(server, 0)) == sizes[server]
