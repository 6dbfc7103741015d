"""What the payloads of hosts could not express: in checkpoints, and where a carrier hangs."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from esync.exchange import WEIGHTS, Payload, SlotLostError, Specification
from esync.exchange.codecs.quantization import COMPRESSIONS
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.round_state import Limits
from esync.exchange.protocol.store import ArraySpec

from ..search.invariants import log_of, logged_commits
from ..support.memory_cluster import MemoryCluster, MemoryStore
from ..support.memory_exchanges import Kept, MemoryExchanges
from ..support.vectors import SIZES, Held, sources, values
from .store_checks import BUCKET, SERVERS, WORKERS
from .test_host_groups import CODECS

LOSSY = ["fp16", "2bit"]
SIZE = 2061
HOSTS = ((0, 1), (2,))
RATE, ROUNDS = 0.25, 6


def started(
    kind: str,
    hosts: Sequence[Sequence[int]],
    checkpoint: Kept | None = None,
    workers: int = 3,
    rule: str = "add_mean_update",
) -> MemoryExchanges:
    asked = Specification(rule, True, compression=kind, tensors=[2000, SIZE - 2000])
    return MemoryExchanges(asked, workers, values_of(0, 0, 1.0), 2, 400, kept=checkpoint, hosts=hosts)


def values_of(rank: int, number: int, scale: float = 0.01) -> np.ndarray:
    return (scale * np.random.default_rng((rank, number)).standard_normal(SIZE)).astype(np.float32)


def rounds(side: MemoryExchanges, *numbers: int) -> None:
    """Let all exchange, once for each number."""
    for number in numbers:
        side.round(side.workers, [values_of(worker.rank, number) for worker in side.workers])


def owed(side: MemoryExchanges, hosts: Sequence[Sequence[int]]) -> np.ndarray:
    """What has not been sent, as a part of the mean: a host's residual is one of its mean."""
    total = np.zeros(SIZE)
    for worker, unsent in zip(side.workers, side.unsent(), strict=True):
        state = unsent.get(WEIGHTS, {})
        total += state.get("rest", 0)
        total += len(next((ranks for ranks in hosts if worker.rank in ranks), ())) * np.asarray(state.get("host", 0.0))
    return total / len(side.workers)


def lossless_weights(workers: int, *numbers: int) -> np.ndarray:
    """What servers would have if nothing was lost on the way."""
    updates = [np.mean([values_of(rank, number) for rank in range(workers)], axis=0) for number in numbers]
    return np.asarray(values_of(0, 0, 1.0) + np.sum(updates, axis=0, dtype=np.float64))


@pytest.mark.parametrize("hosts", [(), HOSTS])
@pytest.mark.parametrize("kind", LOSSY)
def test_compressed_run_resumes_from_checkpoint_bit_for_bit(kind: str, hosts: Sequence[Sequence[int]]) -> None:
    """Residuals of workers and hosts, exact weights and momentum of the servers all affect the bits."""
    reference = started(kind, hosts, rule="outer_nesterov")
    reference.momentum = 0.5
    rounds(reference, 1, 2, 3)
    checkpoint = reference.checkpoint()
    if hosts:
        assert [sorted(unsent.get(WEIGHTS, {})) for unsent in checkpoint.unsent] == [["host", "ranks"], [], ["rest"]]
        assert np.any(checkpoint.unsent[0][WEIGHTS]["host"])
    resumed = started(kind, hosts, checkpoint, rule="outer_nesterov")
    resumed.momentum = 0.5
    for side in (reference, resumed):
        rounds(side, 4, 5, 6)
    assert resumed.exact.tobytes() == reference.exact.tobytes()
    for mine, other in zip(resumed.workers, reference.workers, strict=True):
        assert mine.weights.tobytes() == other.weights.tobytes()
        assert mine.result == other.result


@pytest.mark.parametrize("kind", LOSSY)
def test_hosts_that_resume_a_checkpoint_without_hosts_lose_no_residual(kind: str) -> None:
    alone = started(kind, ())
    rounds(alone, 1, 2)
    checkpoint = alone.checkpoint()
    assert all(np.any(unsent[WEIGHTS]["rest"]) for unsent in checkpoint.unsent)
    together = started(kind, HOSTS, checkpoint)
    np.testing.assert_allclose(together.exact + owed(together, HOSTS), lossless_weights(3, 1, 2), rtol=1e-5, atol=1e-6)
    rounds(together, 3, 4)
    assert [sorted(unsent.get(WEIGHTS, {})) for unsent in together.unsent()] == [["host", "ranks"], [], ["rest"]]
    np.testing.assert_allclose(
        together.exact + owed(together, HOSTS), lossless_weights(3, 1, 2, 3, 4), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("hosts", [(), HOSTS])
def test_compression_that_payloads_choose_changes_from_round_to_round_and_loses_nothing(
    hosts: Sequence[Sequence[int]],
) -> None:
    """Workers may disagree for a round: the answer is packed with the coarsest compression."""
    turns = [("2bit", "2bit", "2bit"), ("2bit", "4bit", "fp16"), ("fp16", "fp16", "fp16"), ("4bit", "4bit", "2bit")]

    def exchange(side: MemoryExchanges, first: int) -> None:
        for number, compressions in enumerate(turns, first):
            for worker, compression in zip(side.workers, compressions, strict=True):
                worker.spawn(
                    lambda worker=worker, compression=compression, number=number: worker.exchange_once(
                        values_of(worker.rank, number), compression=compression
                    )
                )
            side.cluster.run()
            assert len({worker.weights.tobytes() for worker in side.workers}) == 1
            assert side.workers[0].result.scalars["compression"] == max(map(list(COMPRESSIONS).index, compressions))

    reference = started("auto", hosts)
    exchange(reference, 1)
    np.testing.assert_allclose(
        reference.exact + owed(reference, hosts), lossless_weights(3, 1, 2, 3, 4), rtol=1e-5, atol=1e-6
    )
    resumed = started("auto", hosts, reference.checkpoint())
    for side in (reference, resumed):
        exchange(side, 5)
    assert resumed.exact.tobytes() == reference.exact.tobytes()


def test_workers_without_hosts_refuse_the_residual_of_a_host_by_name() -> None:
    together = started("2bit", HOSTS)
    rounds(together, 1)
    with pytest.raises(ValueError, match="go on with the per_host that it was written with"):
        started("2bit", (), together.checkpoint())


def test_hosts_refuse_the_residual_of_a_host_of_other_workers_by_name() -> None:
    """The residuals of two hosts once overwrote each other on one."""
    together = started("2bit", [(0, 1), (2, 3)], workers=4)
    rounds(together, 1)
    with pytest.raises(ValueError, match=r"workers 0, 1, which shared a host, .*now workers 0, 1, 2, 3 share one"):
        started("2bit", [(0, 1, 2, 3)], together.checkpoint(), workers=4)


class HangingRun:
    """A training in which all workers are on one host, and a carrier of the second round hangs between two arrays.

    It goes on when the others have ended that round without it.
    """

    def __init__(self, specification: Specification, seed: int) -> None:
        chance = random.Random(seed)
        options: dict[str, Any] = {"bucket_elements": BUCKET, "lease": 5.0, "hosts": [range(WORKERS)], "haste": 60}
        self.cluster = MemoryCluster(WORKERS, chance.randrange, SERVERS, **options)
        self.specification, self.models = specification, dict[int, Held]()
        self.hung: int | None = None
        self.arrays = chance.randrange(6)  # that it sends before
        with logged_commits():
            self.cluster.run_all(self.work)
            self.check()

    def work(self, store: MemoryStore) -> None:
        """Train as a worker process; subclasses let it hang elsewhere."""
        send, sent = store.send, 0

        def hanging(server: int, places: Iterable[ArraySpec], message: Any = None, others: Sequence[Any] = ()) -> None:
            nonlocal sent
            places = list(places)
            if self.hung is None and places and self.rounds == [1] * SERVERS:
                sent += 1
                if sent > self.arrays:
                    self.hang(store, lambda: min(self.rounds) > 1)
            send(server, places, message, others)

        store.send = hanging
        self.train(store)

    def hang(self, store: MemoryStore, goes_on: Callable[[], bool]) -> None:
        """Suspend a worker until it may go on."""
        self.hung = store.rank
        self.cluster.suspended.add(store.nonce)
        self.cluster.wait(goes_on)
        self.cluster.suspended.discard(store.nonce)

    def train(self, store: MemoryStore) -> None:
        """Train, unless the others have gone on without the worker that hung."""
        group = self.cluster.host_group(store)
        exchange, model = ParameterServerExchange(self.specification, store, host_group=group), Held()
        try:
            exchange.join(SIZES, Limits(rounds=ROUNDS), {})
            self.layout = exchange.layout
            result = exchange.begin(sources(values(0)), model)
            while not result.finished:
                sent = sources(values(exchange.rank, exchange.sequence + 1))
                result = exchange.start(Payload(sent, 1, RATE), model).wait()
        except SlotLostError:
            assert store.rank == self.hung
            self.cluster.hosts[0].end(store.nonce)  # its process ends
            return
        self.models[store.rank] = model
        exchange.close()

    @property
    def rounds(self) -> list[int]:
        return [node.endpoint.server.round_state.round for node in self.cluster.nodes]

    def check(self) -> None:
        """Compare the workers' models, and the servers' with what was used."""
        assert self.hung is not None
        assert {*self.models, self.hung} == {*range(WORKERS)}  # left out or not
        assert len({model.weights.tobytes() for model in self.models.values()}) == 1
        host = self.cluster.hosts[0]
        residual = (
            host.residuals[int(host.table["residual"]) % 2] if host.residuals[0].size else np.zeros(SIZES[WEIGHTS])
        )
        for bucket in self.layout.of(WEIGHTS):
            server, part = self.cluster.nodes[bucket.shard].endpoint.server, slice(bucket.start, bucket.stop)
            expected = values(0)[WEIGHTS][part].astype(np.float64)
            for use in log_of(server.round_state):
                sent = [values(commit.rank, commit.sequence)[WEIGHTS][part] for commit in use.commits]
                expected += RATE * np.mean(sent, axis=0)
            held = server.model.buckets[bucket.index].weights
            np.testing.assert_allclose(held + RATE * residual[part], expected, rtol=1e-4, atol=1e-5)


class HangingFetcherRun(HangingRun):
    """Who fetches the answer of the second round hangs behind the first array.

    It goes on when a later answer is in its place, or the others have ended all rounds without it.
    """

    def goes_on(self) -> bool:
        table = self.cluster.hosts[0].table
        return min(self.rounds) == ROUNDS or bool(table["round"] > 2 and table["complete"].any())

    def work(self, store: MemoryStore) -> None:
        fetch = store.fetch

        def hanging(server: int, places: Sequence[ArraySpec]) -> Iterator[np.ndarray]:
            for number, array in enumerate(fetch(server, places)):
                if self.hung is None and number == 1 and min(self.rounds) == 2:
                    self.hang(store, self.goes_on)
                yield array

        store.fetch = hanging
        self.train(store)


@pytest.mark.parametrize("codec", ["none", "fp16"])
def test_fetcher_that_hangs_while_it_copies_spoils_no_later_answer(codec: str) -> None:
    """It once went on in the memory that had the next round's answer by then."""
    for seed in range(5):
        HangingFetcherRun(replace(Specification("add_mean_update", True), **CODECS[codec]), seed)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_carrier_that_hangs_while_it_sends_spoils_nothing(codec: str, overlap: bool) -> None:
    """It once went on in the buffer that had become the host's residual."""
    for seed in range(4):
        HangingRun(replace(Specification("add_mean_update", True, overlap=overlap), **CODECS[codec]), seed)


def test_payload_that_is_not_part_of_the_hosts_has_not_waited_for_it() -> None:
    side = MemoryExchanges(Specification("sgd", True), 2, np.zeros(8, np.float32), 1, 4, hosts=[(0, 1)])
    host = side.workers[1].exchange._host
    assert host is not None
    host.waited = 3.0
    side.workers[1].spawn(host.abstain)
    side.cluster.run()
    assert host.waited == 0.0
