"""The protocol itself, driven push by push. Nonces are 1000 + rank unless a test gives others."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esync.exchange import wire
from esync.exchange.ledger import Limits
from esync.exchange.resumption import Books, Offer, Offers
from esync.rules import DelayCompensatedSGD, add_mean_update, delayed_nesterov, outer_nesterov, sgd

from .memory_servers import MemoryServers, Push, floats, mean_in_rank_order


def interleaved(draw: st.DrawFn, streams: list[list[Push]]) -> list[Push]:
    """All pushes in some order; ps-lite lets pushes of different keys overtake each other."""
    pushes = [push for stream in streams for push in stream]
    return draw(st.permutations(pushes))


# --- synchronous ------------------------------------------------------------------------------------------------


@st.composite
def rounds_of_payloads(draw):
    """(servers, list of rounds); a round is (payloads by rank, statistics by rank, all pushes in some order)."""
    workers, servers = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    size, statistics = draw(st.integers(1, 9)), draw(st.integers(0, 5))
    seed = draw(st.integers(0, 2**20))
    cluster = MemoryServers(
        workers, floats(seed, size), floats(seed + 1, statistics), servers=servers, bucket_elements=3
    )
    rounds = []
    for sequence in range(1, 3):
        values = [floats(seed + 100 * sequence + rank, size) for rank in range(workers)]
        stats = [floats(seed + 100 * sequence + 50 + rank, statistics) for rank in range(workers)]
        streams = [
            cluster.payload(rank, sequence, values[rank], stats[rank], learning_rate=0.1) for rank in range(workers)
        ]
        rounds.append((values, stats, interleaved(draw, streams)))
    return cluster, rounds


@given(rounds_of_payloads())
def test_the_mean_is_taken_in_rank_order_whatever_the_order_of_arrival(drawn):
    cluster, rounds = drawn
    expected = cluster.weights()
    for number, (values, stats, pushes) in enumerate(rounds, start=1):
        cluster.deliver(*pushes)
        expected = expected - np.float32(0.1) * mean_in_rank_order(values)
        assert cluster.weights().tobytes() == expected.tobytes()
        assert np.array_equal(cluster.statistics(), mean_in_rank_order(stats))
        for shard, memory in enumerate(cluster.memories):
            assert cluster.status(shard)["round"] == number
            assert memory.staged_bytes == 0


@given(rounds_of_payloads())
def test_nothing_changes_before_the_last_worker_has_committed(drawn):
    cluster, rounds = drawn
    before = cluster.weights(), cluster.statistics()
    _, _, pushes = rounds[0]
    last = pushes[-1]
    cluster.deliver(*pushes[:-1])
    after = cluster.weights(), cluster.statistics()
    for bucket in cluster.layout.buckets:  # the other servers have all that they need
        if bucket.shard == last.shard:
            part = slice(bucket.start, bucket.stop)
            assert np.array_equal(after[bucket.statistics][part], before[bucket.statistics][part])
    assert cluster.status(last.shard)["round"] == 0
    assert cluster.status(last.shard)["acknowledged"].tolist() == [0] * cluster.workers


def test_by_hand():
    cluster = MemoryServers(2, [1.0, 2.0, 3.0], [10.0])
    cluster.send(1, 1, np.float32([2, 2, 2]), np.float32([30]), learning_rate=0.5, samples=64)
    assert cluster.weights().tolist() == [1.0, 2.0, 3.0]
    cluster.send(0, 1, np.float32([0, 4, 8]), np.float32([20]), learning_rate=0.5, samples=32)
    assert cluster.weights().tolist() == [1.0 - 0.5 * 1, 2.0 - 0.5 * 3, 3.0 - 0.5 * 5]
    assert cluster.statistics().tolist() == [25.0]  # the mean as it is, whatever the learning rate
    status = cluster.status()
    assert [int(status[name]) for name in ("round", "version", "samples")] == [1, 2, 96]


def test_esyncs_rule_by_hand():
    cluster = MemoryServers(2, [1.0, 2.0], [10.0], rule=add_mean_update)
    cluster.send(0, 1, np.float32([1, 2]), np.float32([0]), learning_rate=0.5)
    cluster.send(1, 1, np.float32([3, -2]), np.float32([1]), learning_rate=0.5)
    assert cluster.weights().tolist() == [1.0 + 0.5 * 2, 2.0]
    assert cluster.statistics().tolist() == [0.5]


def test_momentum_and_weight_decay_travel_with_the_commits():
    cluster = MemoryServers(1, [1.0])
    cluster.send(0, 1, np.float32([1]), learning_rate=0.5, momentum=0.5, weight_decay=1.0)
    # v = −0.5·(1 + 1·1) = −1; w = 0
    assert cluster.weights().tolist() == [0.0]
    cluster.send(0, 2, np.float32([1]), learning_rate=0.25, momentum=0.5, weight_decay=1.0)
    # v = 0.5·(−1) − 0.25·(1 + 1·0) = −0.75
    assert cluster.weights().tolist() == [-0.75]


def test_the_learning_rate_of_a_round_is_that_of_its_smallest_rank():
    for order in itertools.permutations(range(2)):
        cluster = MemoryServers(2, [0.0])
        for rank in order:
            cluster.send(rank, 1, np.float32([1]), learning_rate=(0.5, 0.25)[rank])
        assert cluster.weights().tolist() == [-0.5]


def test_waits_are_measured_by_the_servers_clock():
    cluster = MemoryServers(3, [0.0])
    for rank, now in ((1, 10.0), (2, 12.0), (0, 17.0)):
        cluster.clock.now = now
        cluster.send(rank, 1, np.float32([1]))
    assert cluster.status()["wait"].tolist() == [0.0, 7.0, 5.0]


def test_a_wait_begins_when_the_whole_payload_is_there():
    cluster = MemoryServers(2, np.zeros(8))
    first, second, commit = cluster.payload(0, 1, np.ones(8, np.float32))
    cluster.clock.now = 10.0
    cluster.deliver(commit, second)
    cluster.clock.now = 15.0
    cluster.deliver(first)
    cluster.clock.now = 16.0
    cluster.send(1, 1, np.ones(8, np.float32))
    assert cluster.status()["wait"].tolist() == [1.0, 0.0]


def test_a_commit_that_comes_again_is_harmless():
    cluster = MemoryServers(2, [0.0])
    one = np.float32([1])
    cluster.send(0, 1, one)
    cluster.deliver(*cluster.commits(0, 1, statistics=False))
    assert cluster.status()["round"] == 0
    cluster.send(1, 1, one)
    cluster.deliver(*cluster.commits(0, 1, statistics=False), *cluster.commits(1, 1, statistics=False))
    status = cluster.status()
    assert [int(status[name]) for name in ("round", "version", "samples")] == [1, 2, 2]
    assert cluster.weights().tolist() == [-1.0]
    for rank in (0, 1):
        cluster.send(rank, 2, one)
    assert cluster.weights().tolist() == [-2.0]


# --- workers that die, leave, fail --------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [1, 2, 3])
def test_a_worker_that_dies_before_its_commit_has_sent_nothing(sent):
    """Its replacement's payload takes the place of the pieces that came; the round then is as if nothing had been."""
    cluster = MemoryServers(2, np.zeros(9), [5.0], bucket_elements=3)
    right, wrong = floats(1, 9), floats(2, 9)
    cluster.send(0, 1, right, np.float32([1]))
    cluster.deliver(*cluster.buckets(1, 1, wrong, np.float32([99]))[:sent])
    assert np.array_equal(cluster.weights(), np.zeros(9))

    cluster.join(1, nonce=7)
    status = cluster.status()
    assert status["arrivals"].tolist() == [1, 2]
    assert status["acknowledged"].tolist() == [0, 0]
    cluster.deliver(*cluster.buckets(1, 1, right, np.float32([3]), nonce=7), *cluster.commits(1, 1, nonce=7))
    assert np.array_equal(cluster.weights(), -mean_in_rank_order([right, right]))
    assert cluster.statistics().tolist() == [2.0]
    assert cluster.memories[0].staged_bytes == 0


def test_a_worker_that_dies_between_its_commit_and_its_buckets_has_sent_nothing():
    cluster = MemoryServers(2, np.zeros(8))
    dead, alive = floats(1, 8), floats(2, 8)
    first, second, commit = cluster.payload(0, 1, dead)
    cluster.deliver(commit, first)
    cluster.join(0, nonce=7)
    cluster.deliver(second)  # was still on its way: the commit is not complete, for its worker is dead
    cluster.send(1, 1, alive)
    assert cluster.status()["round"] == 0
    cluster.deliver(*cluster.buckets(0, 1, alive, nonce=7), *cluster.commits(0, 1, nonce=7, statistics=False))
    assert np.array_equal(cluster.weights(), -mean_in_rank_order([alive, alive]))


@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("early", [True, False])
def test_a_worker_that_dies_after_its_commit_has_sent_its_payload(dead, early):
    """It counts once, and nobody waits for the replacement, whose payload for the same round is not needed."""
    cluster = MemoryServers(2, np.zeros(8))
    alive = 1 - dead
    values = [floats(1, 8), floats(2, 8)]
    cluster.send(dead, 1, values[dead], samples=10)
    cluster.join(dead, nonce=7)
    surplus = [
        *cluster.buckets(dead, 1, floats(3, 8), nonce=7),
        *cluster.commits(dead, 1, nonce=7, samples=10, statistics=False),
    ]
    if early:
        cluster.deliver(*surplus)
    assert cluster.status()["round"] == 0
    cluster.send(alive, 1, values[alive], samples=10)
    if not early:
        cluster.deliver(*surplus)
    status = cluster.status()
    assert [int(status[name]) for name in ("round", "version", "samples")] == [1, 2, 20]
    assert status["acknowledged"].tolist() == [1, 1]
    assert np.array_equal(cluster.weights(), -mean_in_rank_order(values))

    before = cluster.weights()
    cluster.deliver(*cluster.buckets(dead, 2, values[0], nonce=7))
    cluster.deliver(*cluster.commits(dead, 2, nonce=7, statistics=False))
    cluster.send(alive, 2, values[0])
    assert cluster.status()["round"] == 2
    assert np.array_equal(cluster.weights(), before - mean_in_rank_order([values[0], values[0]]))
    assert cluster.memories[0].staged_bytes == 0


@pytest.mark.parametrize("kind", [wire.COMMIT, wire.LEAVE, wire.STOP, wire.ABORT])
def test_who_has_lost_its_slot_is_not_listened_to(kind):
    cluster = MemoryServers(2, [0.0])
    cluster.join(0, nonce=7)
    cluster.say(kind, 0, nonce=1000, sequence=1, text="I am still here")
    cluster.send(1, 1, np.float32([1]))
    status = cluster.status()
    assert (int(status["round"]), int(status["stop_at"]), int(status["aborted"])) == (0, -1, 0)
    assert status["member"].tolist() == [1, 1]


def test_late_buckets_of_a_dead_worker_do_not_touch_those_of_its_replacement():
    cluster = MemoryServers(1, np.zeros(8))
    right, wrong = floats(1, 8), floats(2, 8)
    late = cluster.buckets(0, 1, wrong, nonce=1000)
    cluster.join(0, nonce=7)
    first, second = cluster.buckets(0, 1, right, nonce=7)
    cluster.deliver(first, *late, second, *cluster.commits(0, 1, nonce=7, statistics=False))
    assert np.array_equal(cluster.weights(), -right)


def test_rounds_go_on_without_who_has_left():
    cluster = MemoryServers(3, [0.0])
    cluster.send(0, 1, np.float32([1]))
    cluster.send(2, 1, np.float32([2]))
    cluster.say(wire.LEAVE, 1)
    assert cluster.weights().tolist() == [-1.5]
    assert cluster.status()["round"] == 1
    cluster.send(2, 2, np.float32([4]))
    cluster.send(0, 2, np.float32([1]))
    assert cluster.weights().tolist() == [-4.0]
    assert cluster.memories[0].staged_bytes == 0


def test_who_leaves_in_the_middle_of_a_push_has_sent_nothing():
    cluster = MemoryServers(2, np.zeros(8))
    values = floats(1, 8)
    cluster.deliver(cluster.buckets(1, 1, floats(2, 8))[0])
    cluster.say(wire.LEAVE, 1)
    cluster.send(0, 1, values)
    assert np.array_equal(cluster.weights(), -values)


def test_deserted_when_the_last_worker_has_left():
    cluster = MemoryServers(2, [0.0])
    ledger = cluster.nodes[0].server.ledger
    cluster.say(wire.LEAVE, 0)
    assert not ledger.deserted
    cluster.say(wire.LEAVE, 1)
    assert ledger.deserted


@pytest.mark.parametrize("synchronous", [True, False])
def test_abort_is_seen_by_all_and_the_first_reason_stays(synchronous):
    cluster = MemoryServers(2, [0.0], servers=2, synchronous=synchronous)
    cluster.say(wire.ABORT, 1, text="worker 1: the loss is NaN")
    cluster.say(wire.ABORT, 0, text="worker 0: gave up")
    for rank in (0, 1):
        cluster.send(rank, 1, np.float32([1]))
    for shard in (0, 1):
        status = cluster.status(shard)
        assert int(status["aborted"]) == 1
        assert status["text"].decode() == "worker 1: the loss is NaN"
    assert cluster.weights().tolist() == [0.0]


# --- the end of a run -----------------------------------------------------------------------------------------------


def test_stop_ends_a_synchronous_run_after_the_round_under_way():
    cluster = MemoryServers(2, [0.0])
    cluster.send(0, 1, np.float32([1]))
    cluster.say(wire.STOP, 0)
    assert [int(cluster.status()[name]) for name in ("round", "stop_at")] == [0, 1]
    cluster.send(1, 1, np.float32([1]))
    assert [int(cluster.status()[name]) for name in ("round", "stop_at")] == [1, 1]
    assert cluster.weights().tolist() == [-1.0]


def test_stop_ends_an_asynchronous_run_at_once():
    cluster = MemoryServers(2, [0.0], synchronous=False)
    cluster.send(0, 1, np.float32([1]))
    cluster.say(wire.STOP, 0)
    cluster.send(1, 1, np.float32([1]))
    status = cluster.status()
    assert 0 <= status["stop_at"] <= status["round"]
    assert status["acknowledged"].tolist() == [1, 1]
    assert status["used"].tolist() == [1, 0]
    assert cluster.weights().tolist() == [-1.0]


@pytest.mark.parametrize("synchronous", [True, False])
@pytest.mark.parametrize("limits", [Limits(rounds=2), Limits(samples=40), Limits(seconds=20.0)])
def test_limits(synchronous, limits):
    cluster = MemoryServers(2, [0.0], synchronous=synchronous, limits=limits)
    for sequence in (1, 2):
        status = cluster.status()
        assert not 0 <= status["stop_at"] <= status["round"]
        cluster.clock.now += 10.0
        for rank in (0, 1):
            cluster.send(rank, sequence, np.float32([1]), samples=10)
    ended = cluster.status()
    assert 0 <= ended["stop_at"] <= ended["round"]
    weights = cluster.weights().tolist()

    for rank in (0, 1):  # both are answered, so that they can leave, but their payloads are not used
        cluster.send(rank, 3, np.float32([1]), samples=10)
    status = cluster.status()
    assert status["acknowledged"].tolist() == [3, 3]
    assert status["used"].tolist() == [0, 0]
    assert [int(status[name]) for name in ("round", "version", "samples")] == [
        int(ended[name]) for name in ("round", "version", "samples")
    ]
    assert cluster.weights().tolist() == weights
    assert cluster.memories[0].staged_bytes == 0


# --- asynchronous -----------------------------------------------------------------------------------------------


@st.composite
def orders_of_commits(draw):
    return draw(st.integers(1, 3)), draw(st.lists(st.integers(0, 2), min_size=1, max_size=12)), draw(st.integers(0, 99))


@given(orders_of_commits())
def test_asynchronous_payloads_are_used_one_by_one_in_the_order_of_their_commits(drawn):
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


def test_asynchronous_payloads_count_when_they_are_complete_not_when_they_began():
    cluster = MemoryServers(2, np.zeros(8), synchronous=False)
    first, second, commit = cluster.payload(0, 1, np.ones(8, np.float32))
    cluster.deliver(first, commit)
    cluster.send(1, 1, np.full(8, 2, np.float32))
    assert cluster.weights().tolist() == [-2.0] * 8
    assert cluster.status()["acknowledged"].tolist() == [0, 1]
    cluster.deliver(second)
    assert cluster.weights().tolist() == [-3.0] * 8
    assert cluster.status()["acknowledged"].tolist() == [1, 1]


def test_statistics_stay_where_they_are_not_sent():
    cluster = MemoryServers(2, np.zeros(3), [7.0, 8.0], servers=3, synchronous=False, bucket_elements=2)
    cluster.send(0, 1, np.ones(3, np.float32))  # one server holds statistics only and gets a commit without buckets
    assert cluster.statistics().tolist() == [7.0, 8.0]
    assert cluster.weights().tolist() == [-1.0] * 3
    for shard in range(3):
        assert cluster.status(shard)["acknowledged"].tolist() == [1, 0]


# --- private answers: DC-ASGD -----------------------------------------------------------------------------------------


class ReferenceDCASGD:
    """DC-ASGD as in Zheng et al., Algorithms 1 and 2: the server backs up what it sends to each worker."""

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
def test_dcasgd_compensates_against_what_each_worker_was_sent_last(adaptive, drawn):
    servers, order, seed = drawn
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(7).astype(np.float32)
    rule = DelayCompensatedSGD(strength=2.0, adaptive=adaptive)
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


def test_dcasgd_by_hand():
    """One weight of 1, λ = 0.5, learning rate 0.1; worker 1 sends 2, then worker 0 sends 3, then worker 1 sends 1."""
    rule = DelayCompensatedSGD(strength=0.5, adaptive=False)
    cluster = MemoryServers(2, [1.0], rule=rule, synchronous=False, private=True)
    cluster.send(1, 1, np.float32([2]), learning_rate=0.1)  # no delay: 1 − 0.1·2
    assert cluster.weights()[0] == pytest.approx(0.8)
    cluster.send(0, 1, np.float32([3]), learning_rate=0.1)  # 0.8 − 0.1·(3 + 0.5·9·(0.8 − 1)) = 0.8 − 0.1·2.1
    assert cluster.weights()[0] == pytest.approx(0.59)
    cluster.send(1, 2, np.float32([1]), learning_rate=0.1)  # 0.59 − 0.1·(1 + 0.5·1·(0.59 − 0.8)) = 0.59 − 0.1·0.895
    assert cluster.weights()[0] == pytest.approx(0.5005)
    assert cluster.weights(channel=1)[0] == pytest.approx(0.59)
    assert cluster.weights(channel=2)[0] == pytest.approx(0.5005)


def test_a_replacement_begins_with_what_it_was_sent():
    """It pulls the common model and shows it in its own channel; delay counts from there."""
    rule = DelayCompensatedSGD(strength=0.5, adaptive=False)
    cluster = MemoryServers(2, [1.0], rule=rule, synchronous=False, private=True)
    cluster.send(1, 1, np.float32([2]), learning_rate=0.1)
    cluster.join(0, nonce=7)
    cluster.deliver(*cluster.buckets(0, 0, cluster.weights(), kind=wire.NOTHING, nonce=7, channel=1))
    cluster.deliver(*cluster.buckets(0, 1, np.float32([3]), nonce=7))
    cluster.deliver(*cluster.commits(0, 1, learning_rate=0.1, nonce=7, statistics=False))
    assert cluster.weights()[0] == pytest.approx(0.8 - 0.1 * 3)


# --- memory -----------------------------------------------------------------------------------------------------------


@given(rounds_of_payloads())
def test_staged_memory_is_at_most_a_model_for_each_worker(drawn):
    cluster, rounds = drawn
    for _, _, pushes in rounds:
        cluster.deliver(*pushes)
    for shard, memory in enumerate(cluster.memories):
        mine = sum(bucket.stop - bucket.start for bucket in cluster.layout.buckets if bucket.shard == shard)
        assert memory.peak_bytes <= cluster.workers * 4 * mine
        assert memory.staged_bytes == 0


@pytest.mark.parametrize("dying", [False, True])
def test_the_servers_memory_against_the_number_of_workers(dying):
    """The docstring of parameter_server, measured: of its own at most p·M, however many rounds and deaths."""
    workers, size, bucket = 4, 200_000, 20_000
    cluster = MemoryServers(workers, np.zeros(size), bucket_elements=bucket)
    values = np.ones(size, np.float32)

    def round_(sequence: int) -> list[tuple[int | None, list[Push]]]:
        """(nonce of a new rank 0 that greets before them, pushes)"""
        steps: list[tuple[int | None, list[Push]]] = []
        if dying:  # rank 0 dies before its last bucket
            steps.append((2 * sequence, cluster.buckets(0, sequence, values, nonce=2 * sequence)[:-1]))
        nonces = {rank: 2 * sequence + 1 if rank == 0 else 1000 + rank for rank in range(workers)}
        payloads = [cluster.buckets(rank, sequence, values, nonce=nonces[rank]) for rank in range(workers)]
        steps.append((nonces[0], [push for together in zip(*payloads, strict=True) for push in together]))
        for rank in range(workers):
            steps.append((None, cluster.commits(rank, sequence, statistics=False, nonce=nonces[rank])))
        return steps

    steps = [step for sequence in range(1, 5) for step in round_(sequence)]
    tracemalloc.start()
    try:
        for nonce, pushes in steps:
            if nonce is not None:
                cluster.join(0, nonce)
            cluster.deliver(*pushes)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert cluster.status()["round"] == 4
    assert workers * 4 * size <= peak <= workers * 4 * size + 4 * (4 * bucket)  # and the rule's work on one bucket


@pytest.mark.parametrize(("private", "models"), [(False, 1), (True, 4)])
def test_the_key_stores_memory_against_the_number_of_workers(private, models):
    cluster = MemoryServers(3, np.zeros(10_000), bucket_elements=1000, synchronous=not private, private=private)
    kept = sum(array.nbytes for array in cluster.nodes[0].stored.values())
    assert models * 40_000 <= kept <= models * 40_000 * 1.05


# --- checkpoints ----------------------------------------------------------------------------------------------------


def rule_state(cluster: MemoryServers, place: int) -> np.ndarray | None:
    """What rank 0 fetches, bucket by bucket."""
    vector = np.empty(cluster.layout.weights, np.float32)
    for bucket in cluster.layout.buckets:
        if bucket.statistics:
            continue
        show_mailbox(cluster, bucket.shard)
        cluster.deliver(cluster.message(bucket.shard, wire.FETCH, 0, buckets=bucket.index, place=place))
        mailbox = cluster.nodes[bucket.shard].stored[cluster.layout.mailbox_key(bucket.shard)]
        header = wire.header_of(mailbox)
        assert (header["bucket"], header["place"]) == (bucket.index, place)
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
    for place, vector in enumerate(vectors):
        for bucket in cluster.layout.buckets if vector is not None else ():
            if bucket.statistics:
                continue
            show_mailbox(cluster, bucket.shard)
            values = np.zeros(wire.HEADER_ELEMENTS + cluster.layout.mailbox_elements(bucket.shard), np.float32)
            header = wire.header_of(values)
            header["kind"], header["rank"], header["nonce"] = wire.STATE, rank, nonce
            header["bucket"], header["place"], header["sequence"] = bucket.index, place, len(vectors)
            values[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start] = vector[bucket.start : bucket.stop]
            cluster.deliver(Push(bucket.shard, cluster.layout.mailbox_key(bucket.shard), values))


RULES = {
    "sgd": (sgd, False, 1),
    "outer momentum": (outer_nesterov, False, 1),
    "delayed momentum": (delayed_nesterov, False, 2),
    "delay compensated": (DelayCompensatedSGD(2.0, adaptive=True), True, 2),
}


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("rule", RULES)
def test_servers_go_on_with_the_state_of_others_bit_for_bit(rule: str, servers: int) -> None:
    function, private, places = RULES[rule]
    step = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    size = 11
    options = {"servers": servers, "bucket_elements": 3, "rule": function, "private": private}
    first = MemoryServers(1, floats(0, size), floats(1, 2), synchronous=not private, **options)
    assert [rule_state(first, place) for place in range(places)] == [None] * places
    for sequence in (1, 2):
        first.send(0, sequence, floats(10 + sequence, size), **step)
    state = [rule_state(first, place) for place in range(places)]
    channel = 1 if private else 0
    second = MemoryServers(
        1, first.weights(channel), first.statistics(), synchronous=not private, joined=False, **options
    )
    second.join(0)
    put_state(second, state)
    books = Books(round=2, version=2, samples=2, elapsed=7.0)
    for node in second.nodes:
        node.server.resume(0, 1000, 2, books)
    for cluster in (first, second):
        cluster.send(0, 3, floats(13, size), **step)
    assert second.weights(channel).tobytes() == first.weights(channel).tobytes()
    for shard in range(servers):
        status = second.status(shard)
        assert (status["round"], status["version"], status["samples"], status["acknowledged"][0]) == (3, 3, 3, 3)
        assert status["elapsed"] == 7.0


def test_state_of_a_worker_that_has_been_replaced_is_not_taken() -> None:
    cluster = MemoryServers(1, [1.0, 2.0, 3.0])
    put_state(cluster, [np.ones(3, np.float32)], nonce=999)
    cluster.nodes[0].server.resume(0, 999, 5, Books(5, 5, 5, 5.0))
    assert rule_state(cluster, 0) is None
    assert cluster.status()["acknowledged"][0] == 0


def test_limits_count_from_the_beginning_of_the_run() -> None:
    cluster = MemoryServers(1, [1.0], limits=Limits(rounds=10, samples=50, seconds=60.0))
    server = cluster.nodes[0].server
    server.resume(0, 1000, 4, Books(4, 4, 40, 30.0))
    assert not server.ledger.finished
    cluster.clock.now += 29.0
    cluster.send(0, 5, np.ones(1, np.float32), samples=1)
    assert not server.ledger.finished
    cluster.clock.now += 1.0
    cluster.send(0, 6, np.ones(1, np.float32), samples=1)
    assert server.ledger.finished
    assert server.ledger.elapsed == 60.0


@pytest.mark.parametrize("books", [Books(10, 10, 0, 0.0), Books(4, 4, 50, 0.0), Books(4, 4, 0, 60.0)])
def test_a_run_that_was_over_is_over(books: Books) -> None:
    cluster = MemoryServers(1, [1.0], limits=Limits(rounds=10, samples=50, seconds=60.0))
    cluster.nodes[0].server.resume(0, 1000, 4, books)
    assert cluster.nodes[0].server.ledger.finished


def test_all_workers_offers_settle_where_the_run_goes_on() -> None:
    cluster = MemoryServers(2, [1.0], joined=False)
    server, ledger = cluster.nodes[0].server, cluster.nodes[0].server.ledger
    server.join(0, 1000, Offers(True, (Offer(6, 5, 2, (0, 1)),)))
    assert (ledger.resume_at, ledger.job) == (-1, 1000)
    server.join(1, 1001, Offers(True, (Offer(6, 5, 2),)))
    assert ledger.resume_at == 6
    server.join(0, 2000, Offers())  # a replacement
    assert (ledger.resume_at, ledger.job, ledger.failure) == (6, 1000, "")
    cluster.say(wire.NOTHING, 1)
    assert (cluster.status()["resume_at"], cluster.status()["job"]) == (6, 1000)


def test_a_checkpoint_that_does_not_fit_ends_the_job_for_all() -> None:
    cluster = MemoryServers(2, [1.0], joined=False)
    cluster.nodes[0].server.join(0, 1000, Offers(True))
    cluster.nodes[0].server.join(1, 1001, Offers(True, problem="seed 1 instead of 2"))
    assert cluster.nodes[0].server.ledger.failure == "worker 1: seed 1 instead of 2"
