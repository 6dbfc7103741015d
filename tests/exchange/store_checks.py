"""What every store has to do, as one of three workers over two servers sees it.

Above that there is a small training.

`check_store` needs a fresh cluster, and so does every `train`. All workers call the same.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from esync.exchange import WEIGHTS, Payload, Specification
from esync.exchange.protocol import wire
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.handshake import Handshake, Resumed
from esync.exchange.protocol.layout import Bucket, Layout
from esync.exchange.protocol.round_state import Limits
from esync.exchange.protocol.status import Status
from esync.exchange.protocol.store import ArraySpec, CancelledError, Store

from ..support.vectors import SIZES, TENSORS, Held, sources, values

WORKERS, SERVERS, BUCKET = 3, 2, 4
ROUNDS = 4

#: Name → what the workers of a training ask for.
SPECIFICATIONS: dict[str, Specification] = {
    "sgd": Specification("sgd", True),
    "fp16": Specification("add_mean_update", True, compression="fp16", tensors=TENSORS),
    "2bit": Specification("add_mean_update", True, compression="2bit", tensors=TENSORS),
    "overlap": Specification("add_mean_update", True, overlap=True),
    "async": Specification("sgd", False),
    "dgs": Specification(
        "difference",
        False,
        {"tensors": TENSORS, "secondary_ratio": 0.0, "dense_below": 0, "values": "float32"},
        sparse=True,
    ),
    "dgs, secondary": Specification(
        "difference",
        False,
        {"tensors": TENSORS, "secondary_ratio": 0.3, "dense_below": 0, "values": "float32"},
        sparse=True,
        private=True,
    ),
    "dcasgd": Specification("delay_compensated_sgd", False, {"strength": 0.5, "adaptive": False}, private=True),
}


class Worker:
    """Speaks with a store by hand, as `ParameterServerExchange` does.

    Args:
        store: a fresh one.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.handshake = Handshake(
            rank=store.rank,
            nonce=store.nonce,
            slots=store.workers,
            sizes=SIZES,
            servers=store.servers,
            bucket_elements=BUCKET,
            specification=Specification("sgd", True),
            lease=store.lease,
            address=store.address,
        )
        self.layout: Layout = self.handshake.layout()
        self.plan = self.places()
        self.sequence = 0
        self.seen: list[Status] = []

    def buckets(self, server: int) -> list[Bucket]:
        return [bucket for bucket in self.layout.buckets if bucket.shard == server]

    def places(self, channel: int = 0) -> list[tuple[ArraySpec, ...]]:
        """Server → the places of all its buckets in a channel."""
        return [
            tuple(
                (self.layout.key(bucket, channel), wire.HEADER_ELEMENTS + bucket.stop - bucket.start)
                for bucket in self.buckets(server)
            )
            for server in range(self.store.servers)
        ]

    def fill(self, vectors: Mapping[str, np.ndarray], kind: int, channel: int = 0) -> None:
        for bucket in self.layout.buckets:
            key = self.layout.key(bucket, channel)
            buffer = self.store.buffer(key, wire.HEADER_ELEMENTS + bucket.stop - bucket.start)
            wire.stamp(buffer, kind, self.store.rank, self.store.nonce, self.sequence, bucket.index)
            buffer[wire.HEADER_ELEMENTS :] = vectors[bucket.vector][bucket.start : bucket.stop]

    def fetched(self, channel: int = 0) -> dict[str, np.ndarray]:
        held = Held()
        under_way = [self.store.fetch(server, places) for server, places in enumerate(self.places(channel))]
        for server, arrays in enumerate(under_way):
            for bucket, array in zip(self.buckets(server), arrays, strict=True):
                held.write(bucket.vector, bucket.start, array[wire.HEADER_ELEMENTS :])
        return held.vectors

    def message(self, kind: int, **fields: Any) -> dict[str, Any]:
        sender = {"rank": self.store.rank, "nonce": self.store.nonce, "sequence": self.sequence}
        return {**wire.blank_message(), "kind": kind, **sender, **fields}

    def commit(self, server: int, places: tuple[ArraySpec, ...] = ()) -> None:
        """Send the places' arrays and the commit, all in one."""
        terms = {"buckets": len(places), "samples": 1, "learning_rate": 0.5}
        self.store.send(server, places, self.message(wire.COMMIT, **terms))

    def look(self, status: Status) -> None:
        assert status.nonce == self.store.nonce
        assert not status.failure
        self.seen.append(status)


def check_store(store: Store) -> None:
    """Go through all of it, exchange by exchange."""
    worker = Worker(store)
    store.send_handshake(worker.handshake)
    assert [status.nonce for status in store.statuses()] == [store.nonce] * store.servers
    check_time(store)
    check_keys_that_all_share(worker)
    check_a_round(worker, expected=mean_step(values(0), 1))
    check_waiting_beside(worker, expected=mean_step(mean_step(values(0), 1), 2))
    check_own_keys(worker)
    check_a_key_and_its_size(worker)
    check_commands(worker)
    store.close(worker.message(wire.LEAVE))


def mean_step(before: Mapping[str, np.ndarray], sequence: int) -> dict[str, np.ndarray]:
    """What a round makes of a model, by rule sgd; statistics become the mean."""
    means = {}
    for name in SIZES:
        total = values(sequence, 0)[name]
        for rank in range(1, WORKERS):
            total = total + values(sequence, rank)[name]
        means[name] = total / np.float32(WORKERS)
    return {name: before[name] - np.float32(0.5) * mean if name == WEIGHTS else mean for name, mean in means.items()}


def assert_same(held: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert {name: array.tobytes() for name, array in held.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }


def check_time(store: Store) -> None:
    before = store.now()
    store.sleep(0.002)
    assert store.now() >= before + 0.002
    store.inject_delay()
    with store.waiting("nothing at") as wait:
        assert "nothing at" in wait.what
        wait.check()


def check_keys_that_all_share(worker: Worker) -> None:
    """Those of rank 0 are kept; the others', who set the same keys up, are not."""
    worker.fill(values(worker.store.rank), wire.NOTHING)
    worker.store.init_shared(worker.plan)
    assert_same(worker.fetched(), values(0))


def check_a_round(worker: Worker, expected: Mapping[str, np.ndarray]) -> None:
    """Check many keys at once, the last ones first.

    What is fetched afterwards must be what the servers have published.
    """
    store = worker.store
    worker.sequence = 1
    worker.fill(values(1, store.rank), wire.PAYLOAD)
    places = tuple(reversed(worker.plan[0]))
    worker.commit(0, places)
    assert store.acknowledged(1, worker.look) is None  # the second server has nothing yet
    for place in reversed(worker.plan[1]):
        store.send(1, [place])
    terms = {"buckets": len(worker.plan[1]), "samples": 1, "learning_rate": 0.5}
    store.send(1, (), worker.message(wire.COMMIT, **terms))
    worker.seen.clear()
    statuses = store.await_acknowledged(1, worker.look)
    assert [status.acknowledged for status in statuses] == [1] * store.servers
    assert [status.round for status in statuses] == [1] * store.servers
    assert all(status in worker.seen for status in statuses)
    assert store.acknowledged(1, worker.look) is not None
    assert_same(worker.fetched(), expected)


def check_waiting_beside(worker: Worker, expected: Mapping[str, np.ndarray]) -> None:
    """A task that is cancelled has stopped waiting; one that is not waits for the same thing."""
    store = worker.store
    worker.sequence = 2
    worker.fill(values(2, store.rank), wire.PAYLOAD)
    worker.commit(0, worker.plan[0])
    task = store.spawn(lambda: void(store.await_acknowledged(2, worker.look)))
    task.cancel()
    with pytest.raises(CancelledError):
        task.wait()
    assert task.done()
    worker.commit(1, worker.plan[1])
    answers: list[list[Status]] = []
    task = store.spawn(lambda: answers.append(store.await_acknowledged(2, worker.look)))
    task.wait()
    assert task.done()
    assert [status.round for status in answers[0]] == [2] * store.servers

    def refuse(status: Status) -> None:
        raise ArithmeticError(f"round {status.round}")

    with pytest.raises(ArithmeticError, match="round 2"):
        store.await_acknowledged(2, refuse)
    failing = store.spawn(lambda: void(store.await_acknowledged(2, refuse)))
    with pytest.raises(ArithmeticError, match="round 2"):
        failing.wait()
    assert_same(worker.fetched(), expected)


def check_own_keys(worker: Worker) -> None:
    """Check that a worker gets back what it has put on its own channel.

    Released buffers must be available again.
    """
    store, channel = worker.store, worker.store.rank + 1
    plan = worker.places(channel)
    worker.fill(values(7, store.rank), wire.NOTHING, channel)
    store.open(plan)
    assert_same(worker.fetched(channel), values(7, store.rank))
    store.release([key for part in plan for key, _ in part])
    worker.fill(values(8, store.rank), wire.NOTHING, channel)
    for server, places in enumerate(plan):
        store.send(server, places, worker.message(wire.NOTHING))
    store.flush()
    assert_same(worker.fetched(channel), values(8, store.rank))


def check_a_key_and_its_size(worker: Worker) -> None:
    key, elements = worker.plan[0][0]
    store = worker.store
    store.buffer(key, elements)
    with pytest.raises(ValueError, match=f"key {key} is bound to {elements} values, not {elements + 1}"):
        store.buffer(key, elements + 1)


def check_commands(worker: Worker) -> None:
    """The servers have a command when it returns."""
    store = worker.store
    store.command(Resumed(store.rank, store.nonce, 40, None))
    assert [status.acknowledged for status in store.statuses()] == [40] * store.servers


def void(_: object) -> None:
    """A task has no result."""


# --- a training above it --------------------------------------------------------------------------


def train(kind: str, store: Store, connect: Callable[..., Any] = ParameterServerExchange) -> Held:
    """Train for `ROUNDS` exchanges of each worker.

    Where payloads are used at once, workers take turns, after a first one of nothing from each: by
    then all have begun.
    """
    specification, held = SPECIFICATIONS[kind], Held()
    exchange: ParameterServerExchange = connect(specification, store)
    exchange.join(SIZES, Limits(rounds=ROUNDS), {})
    exchange.begin(sources(values(store.rank)), held)
    for number in range(ROUNDS):
        while not specification.synchronous and number and turn(store) < number * store.workers + store.rank:
            store.sleep(0.001)
        exchange.start(payload_of(kind, number, store.rank), held).wait()
    while turn(store) < ROUNDS * store.workers:  # who leaves early takes its statistics along
        store.sleep(0.001)
    exchange.close()
    return held


def turn(store: Store) -> int:
    """Commits that all servers have used."""
    return min(status.version for status in store.statuses())


def payload_of(kind: str, number: int, rank: int) -> Payload:
    """What a worker sends in an exchange; about half of its weights where messages are sparse."""
    specification, sent = SPECIFICATIONS[kind], values(number, rank, 1)
    if not specification.synchronous and not number:
        sent = {name: np.zeros(size, np.float32) for name, size in SIZES.items()}
    # What is used at once and comes back to all is as the next ones have left it when it is
    # fetched.
    vectors = None if specification.synchronous else (WEIGHTS,)
    if not specification.sparse:
        return Payload(sources(sent), 1, 0.25, requested=vectors)
    weights = sent.pop(WEIGHTS)
    places = np.flatnonzero(weights > 0)
    return Payload(sources(sent), 1, 0.25, requested=vectors, step=(places, weights[places]))


def comparable(kind: str) -> tuple[range, list[str]]:
    """The ranks and the vectors that, in the end, do not depend on how fast they were fetched."""
    specification = SPECIFICATIONS[kind]
    alike = specification.synchronous or specification.private or specification.sparse
    ranks = range(WORKERS) if alike else range(WORKERS - 1, WORKERS)
    return ranks, list(SIZES) if specification.synchronous else [WEIGHTS]
