"""A server's state of a checkpoint, and servers that go on with it.

Nonces are 1000 + rank unless a test gives others.
"""

import numpy as np
import pytest

from esync.exchange.protocol import wire
from esync.exchange.protocol.layout import WEIGHTS
from esync.exchange.protocol.resume_negotiation import Offers, RunProgress
from esync.exchange.protocol.round_state import Limits
from esync.rules import CenteredRMSPropRule, DelayCompensatedSGDRule, Rule, delayed_nesterov, sgd

from ..support.memory_servers import MemoryServers, Push, floats


def rule_state(cluster: MemoryServers, index: int) -> np.ndarray | None:
    """What rank 0 fetches, bucket by bucket."""
    vector = np.empty(cluster.layout.sizes[WEIGHTS], np.float32)
    for bucket in cluster.layout.of(WEIGHTS):
        show_mailbox(cluster, bucket.shard)
        cluster.deliver(cluster.message(bucket.shard, wire.FETCH, 0, buckets=bucket.index, index=index))
        mailbox = cluster.nodes[bucket.shard].stored[cluster.layout.mailbox_key(bucket.shard)]
        header = wire.header_of(mailbox)
        assert (header["bucket"], header["index"]) == (bucket.index, index)
        if header["kind"] == wire.NOTHING:
            return None
        vector[bucket.start : bucket.stop] = mailbox[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start]
    return vector


def show_mailbox(cluster: MemoryServers, shard: int) -> None:
    size = wire.HEADER_ELEMENTS + cluster.layout.mailbox_elements(shard)
    for _ in range(2):  # the first sets the key up, the second shows the server where it is
        cluster.deliver(Push(shard, cluster.layout.mailbox_key(shard), np.zeros(size, np.float32)))


def put_state(cluster: MemoryServers, vectors: list[np.ndarray | None], rank: int = 0, nonce: int = 1000) -> None:
    """What rank 0 does on its way back to a checkpoint."""
    for index, vector in enumerate(vectors):
        for bucket in cluster.layout.of(WEIGHTS) if vector is not None else ():
            show_mailbox(cluster, bucket.shard)
            values = np.zeros(wire.HEADER_ELEMENTS + cluster.layout.mailbox_elements(bucket.shard), np.float32)
            header = wire.header_of(values)
            header["kind"], header["rank"], header["nonce"] = wire.STATE, rank, nonce
            header["bucket"], header["index"], header["sequence"] = bucket.index, index, len(vectors)
            values[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start] = vector[bucket.start : bucket.stop]
            cluster.deliver(Push(bucket.shard, cluster.layout.mailbox_key(bucket.shard), values))


#: The rule, whether its answers are private, and how many vectors it remembers.
RULES: list[tuple[Rule, bool, int]] = [
    (sgd, False, 1),
    (delayed_nesterov, False, 2),
    (DelayCompensatedSGDRule(2.0, adaptive=True), True, 2),
    (CenteredRMSPropRule(), False, 3),
]


@pytest.mark.parametrize(("rule", "private", "count"), RULES)
def test_restored_servers_continue_bit_for_bit(rule: Rule, private: bool, count: int) -> None:
    step = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    size = 11
    options = {
        "servers": 3, "bucket_elements": 3, "rule": rule, "private": private, "synchronous": not private
    }  # fmt: skip
    first = MemoryServers(1, floats(0, size), floats(1, 2), **options)
    assert [rule_state(first, index) for index in range(count)] == [None] * count
    for sequence in (1, 2):
        first.send(0, sequence, floats(10 + sequence, size), **step)
    state = [rule_state(first, index) for index in range(count)]
    channel = 1 if private else 0
    second = MemoryServers(1, first.weights(channel), first.statistics(), **options)
    put_state(second, state)
    progress = RunProgress(round=2, version=2, samples=2, elapsed=7.0, step=2)
    for node in second.nodes:
        node.server.resume(0, 1000, 2, progress)
    for cluster in (first, second):
        cluster.send(0, 3, floats(13, size), **step)
    assert second.weights(channel).tobytes() == first.weights(channel).tobytes()
    for shard in range(3):
        status = second.status(shard)
        assert (status["round"], status["version"], status["samples"], status["acknowledged"][0]) == (3, 3, 3, 3)
        assert status["elapsed"] == 7.0


def test_restored_state_of_a_replaced_worker_is_ignored() -> None:
    cluster = MemoryServers(1, [1.0, 2.0, 3.0])
    put_state(cluster, [np.ones(3, np.float32)], nonce=999)
    cluster.nodes[0].server.resume(0, 999, 5, RunProgress(5, 5, 5, 5.0))
    assert rule_state(cluster, 0) is None
    assert cluster.status()["acknowledged"][0] == 0


def test_restored_server_counts_limits_from_the_beginning_of_the_run() -> None:
    cluster = MemoryServers(1, [1.0], limits=Limits(rounds=10, samples=50, seconds=60.0))
    server = cluster.nodes[0].server
    server.resume(0, 1000, 4, RunProgress(4, 4, 40, 30.0))
    assert not server.round_state.finished
    cluster.clock.now += 29.0
    cluster.send(0, 5, np.ones(1, np.float32), samples=1)
    assert not server.round_state.finished
    cluster.clock.now += 1.0
    cluster.send(0, 6, np.ones(1, np.float32), samples=1)
    assert server.round_state.finished
    assert server.round_state.elapsed == 60.0


@pytest.mark.parametrize(
    "progress", [RunProgress(10, 10, 0, 0.0), RunProgress(4, 4, 50, 0.0), RunProgress(4, 4, 0, 60.0)]
)
def test_restored_server_of_a_finished_run_is_finished(progress: RunProgress) -> None:
    cluster = MemoryServers(1, [1.0], limits=Limits(rounds=10, samples=50, seconds=60.0))
    cluster.nodes[0].server.resume(0, 1000, 4, progress)
    assert cluster.nodes[0].server.round_state.finished


def test_server_with_unusable_checkpoint_of_one_worker_aborts_the_job() -> None:
    cluster = MemoryServers(2, [1.0], joined=False)
    cluster.nodes[0].server.join(0, 1000, Offers(True))
    cluster.nodes[0].server.join(1, 1001, Offers(True, problem="seed 1 instead of 2"))
    assert cluster.nodes[0].server.round_state.failure == "worker 1: seed 1 instead of 2"
