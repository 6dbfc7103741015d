"""Payloads that are used one by one, and DC-ASGD's private answers, push by push.

Nonces are 1000 + rank unless a test gives others.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esync.exchange.protocol import wire
from esync.rules import DelayCompensatedSGDRule

from ..support.memory_servers import MemoryServers, floats


@st.composite
def orders_of_commits(draw):
    return draw(st.integers(1, 3)), draw(st.lists(st.integers(0, 2), min_size=1, max_size=12)), draw(st.integers(0, 99))


@given(orders_of_commits())
@settings(max_examples=25)
def test_asynchronous_payloads_are_applied_in_the_order_of_their_commits(drawn):
    servers, order, seed = drawn
    cluster = MemoryServers(3, floats(seed, 7), servers=servers, bucket_elements=2, synchronous=False)
    expected, velocity = cluster.weights(), np.zeros(7, np.float32)
    for number, rank in enumerate(order, start=1):
        gradient = floats(seed + number, 7)
        sequence = order[:number].count(rank)
        cluster.send(rank, sequence, gradient, learning_rate=0.25, momentum=0.5)
        velocity = np.float32(0.5) * velocity - np.float32(0.25) * gradient
        expected = expected + velocity
        np.testing.assert_array_equal(cluster.weights(), expected)
        status = cluster.status()
        assert (int(status["version"]), int(status["round"])) == (number, number // 3)
        assert status["acknowledged"][rank] == sequence
        assert status["wait"].tolist() == [0.0, 0.0, 0.0]
    assert all(memory.staged_bytes == 0 for memory in cluster.memories)


def test_asynchronous_payload_counts_when_it_is_complete():
    cluster = MemoryServers(2, np.zeros(8), synchronous=False)
    first, second, commit = cluster.payload(0, 1, np.ones(8, np.float32))
    cluster.deliver(first, commit)
    cluster.send(1, 1, np.full(8, 2, np.float32))
    assert cluster.weights().tolist() == [-2.0] * 8
    assert cluster.status()["acknowledged"].tolist() == [0, 1]
    cluster.deliver(second)
    assert cluster.weights().tolist() == [-3.0] * 8
    assert cluster.status()["acknowledged"].tolist() == [1, 1]


def test_statistics_that_are_not_sent_stay():
    cluster = MemoryServers(2, np.zeros(3), [7.0, 8.0], servers=3, synchronous=False, bucket_elements=2)
    cluster.send(0, 1, np.ones(3, np.float32))  # one server holds statistics only and gets a commit without buckets
    assert cluster.statistics().tolist() == [7.0, 8.0]
    assert cluster.weights().tolist() == [-1.0] * 3
    for shard in range(3):
        assert cluster.status(shard)["acknowledged"].tolist() == [1, 0]


class ReferenceDCASGD:
    """DC-ASGD as in Zheng et al., Algorithms 1 and 2.

    The server backs up what it sends to each worker.
    """

    def __init__(self, weights: np.ndarray, workers: int, strength: float, adaptive: bool) -> None:
        self.weights = weights.astype(np.float64)
        self.backup = [self.weights.copy() for _ in range(workers)]
        self.mean_square = np.zeros_like(self.weights)
        self.strength, self.adaptive = strength, adaptive

    def gradient(self, worker: int, gradient: np.ndarray, learning_rate: float) -> np.ndarray:
        gradient = gradient.astype(np.float64)
        strength = self.strength
        if self.adaptive:
            self.mean_square = 0.95 * self.mean_square + 0.05 * gradient**2
            strength = self.strength / np.sqrt(self.mean_square + 1e-7)
        delay = self.weights - self.backup[worker]
        self.weights = self.weights - learning_rate * (gradient + strength * gradient * gradient * delay)
        self.backup[worker] = self.weights.copy()
        return self.weights


@pytest.mark.parametrize("adaptive", [False, True])
@given(orders_of_commits())
@settings(max_examples=25)
def test_dcasgd_compensates_against_what_each_worker_was_sent_last(adaptive, drawn):
    servers, order, seed = drawn
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(7).astype(np.float32)
    rule = DelayCompensatedSGDRule(strength=2.0, adaptive=adaptive)
    cluster = MemoryServers(3, start, servers=servers, bucket_elements=2, rule=rule, synchronous=False, private=True)
    reference = ReferenceDCASGD(start, 3, strength=2.0, adaptive=adaptive)
    last = [start.copy() for _ in range(3)]
    for number, rank in enumerate(order, start=1):
        gradient = rng.standard_normal(7).astype(np.float32)
        cluster.send(rank, order[:number].count(rank), gradient, learning_rate=0.1)
        last[rank] = reference.gradient(rank, gradient, 0.1).astype(np.float32)
        np.testing.assert_allclose(cluster.weights(), last[rank], rtol=1e-4, atol=1e-5)
        for other in range(3):  # every worker still sees what it was sent
            np.testing.assert_allclose(cluster.weights(channel=other + 1), last[other], rtol=1e-4, atol=1e-5)


def test_dcasgd_replacement_begins_with_the_model_it_pulled():
    """It pulls the common model and writes it to its own channel.

    The delay is counted from there.
    """
    rule = DelayCompensatedSGDRule(strength=0.5, adaptive=False)
    cluster = MemoryServers(2, [1.0], rule=rule, synchronous=False, private=True)
    cluster.send(1, 1, [2], learning_rate=0.1)
    cluster.join(0, nonce=7)
    cluster.deliver(*cluster.buckets(0, 0, cluster.weights(), kind=wire.NOTHING, nonce=7, channel=1))
    cluster.send(0, 1, [3], nonce=7, learning_rate=0.1)
    assert cluster.weights()[0] == pytest.approx(0.8 - 0.1 * 3)
