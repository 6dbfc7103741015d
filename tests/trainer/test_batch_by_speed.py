"""`batch_by_speed`: trainers with unequal batches against one process with all samples, and with speeds that change.

Trainers and exchanges are real; servers and devices are in memory.
"""

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import esync
from esync import config
from esync.algorithms import SSGD, LocalSGD
from esync.algorithms.batch_division import BatchBySpeedError, BatchDivision
from esync.exchange.protocol.round_state import Limits
from esync.runtime.batch_sizes import EQUAL_ROUNDS, StepTime
from esync.runtime.mxnet_import import mx

from ..support.memory_cluster import MemoryCluster, MemoryStore
from ..support.memory_world import MemoryWorld
from ..support.small_net import differentiate, flat

#: Devices whose iterations with equal batches take that many seconds; 0.5 s of the last one's are fixed.
TIMES = (StepTime(1.0), StepTime(1.0), StepTime(4.0, 0.5))
BATCH = 8
ROUNDS = 24
SLOWER = 6  # round after which the first device takes three times as long

OPTIMIZERS = [
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}),
    ("adam", {"learning_rate": 0.01, "wd": 0.01, "clip_gradient": 0.5, "epsilon": 1e-4}),
]


def make_net() -> Any:
    """The same weights at every call; without batch norm, whose statistics are those of a batch."""
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Dense(6, in_units=5, activation="tanh"), mx.gluon.nn.Dense(3, in_units=6))
    mx.random.seed(3)
    net.initialize(mx.init.Xavier())
    return net


def samples_of(round_: int, start: int, stop: int) -> tuple[Any, Any]:
    """Some of the samples of a round's iteration of all workers together."""
    total = len(TIMES) * BATCH
    assert 0 <= start < stop <= total
    rng = np.random.default_rng(round_)
    data, labels = rng.standard_normal((total, 5)), rng.integers(0, 3, total)
    return mx.nd.array(data[start:stop]), mx.nd.array(labels[start:stop])


def backward(net: Any, data: Any, labels: Any) -> None:
    differentiate(lambda: mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(data), labels))


class Job:
    """Three workers, the first of which becomes slower.

    Attributes:
        sizes: samples of each worker's batch in each round.
        weights: of each worker's final model.
    """

    def __init__(self, optimizer: str, options: dict[str, Any], *, asks: bool = True, algorithm: Any = SSGD) -> None:
        self.optimizer, self.options, self.asks, self.algorithm = optimizer, options, asks, algorithm
        self.sizes: dict[int, list[int]] = {rank: [] for rank in range(len(TIMES))}
        self.weights: dict[int, list[float]] = {}
        cluster = MemoryCluster(len(TIMES), random.Random(0).randrange, bucket_elements=16)
        self.trainers: dict[int, Any] = {}
        cluster.run_all(self._live)

    def _live(self, store: MemoryStore) -> None:
        world, net = MemoryWorld(store), make_net()
        world.step_times = TIMES
        trainer = esync.Trainer(
            net.collect_params(),
            self.optimizer,
            dict(self.options),
            algorithm=self.algorithm(),
            limits=Limits(rounds=ROUNDS),
            world=world,
        )
        rank = store.rank
        self.trainers[rank] = trainer
        trainer.start()
        while not trainer.finished:
            size = trainer.batch_size(BATCH) if self.asks else BATCH
            self.sizes[rank].append(size)
            slowdown = 3.0 if rank == 0 and trainer.round >= SLOWER else 1.0
            world.device.seconds = slowdown * TIMES[rank].at(size / BATCH)
            start = self._start(trainer, rank)
            backward(net, *samples_of(trainer.round, start, start + size))
            trainer.step(size)
        trainer.close()
        self.weights[rank] = flat(net)

    def _start(self, trainer: Any, rank: int) -> int:
        """The place of this worker's samples, by the sizes that it knows of the others."""
        return sum(trainer.algorithm.batches._sizes[:rank]) if self.asks else 0


def one_process(optimizer: str, options: dict[str, Any]) -> list[float]:
    net = make_net()
    trainer = mx.gluon.Trainer(net.collect_params(), optimizer, dict(options), kvstore=None)
    for round_ in range(ROUNDS):
        total = len(TIMES) * BATCH
        backward(net, *samples_of(round_, 0, total))
        trainer.step(total)
    return flat(net)


@pytest.mark.parametrize(
    ("optimizer", "options"), OPTIMIZERS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_sync_with_batches_by_speed_that_change_equals_one_process_with_all_samples(
    optimizer: str, options: dict[str, Any]
) -> None:
    job = Job(optimizer, options)

    sizes = list(zip(*job.sizes.values(), strict=True))
    assert len(sizes) == ROUNDS
    assert {sum(of_round) for of_round in sizes} == {len(TIMES) * BATCH}
    assert sizes[0] == (11, 11, 2)  # 1.375, 1.375 and 1.375 s
    assert sizes[-1][0] < 8 < sizes[-1][1]  # the first is slower than the second now
    assert slowest(sizes[-1]) < 0.6 * slowest(sizes[0])
    changes = [number for number in range(1, ROUNDS) if sizes[number] != sizes[number - 1]]
    assert len(changes) == 1
    assert SLOWER < changes[0] <= SLOWER + config.BATCH_WINDOW
    for rank in range(1, len(TIMES)):
        np.testing.assert_array_equal(job.weights[rank], job.weights[0])
    np.testing.assert_allclose(job.weights[0], one_process(optimizer, options), rtol=1e-4, atol=1e-6)


def slowest(sizes: Sequence[int]) -> float:
    """The seconds of the slowest iteration, after the first device has become slower."""
    return max(
        (3.0 if rank == 0 else 1.0) * time.at(size / BATCH)
        for rank, (time, size) in enumerate(zip(TIMES, sizes, strict=True))
    )


def test_program_that_does_not_ask_for_its_batch_size_is_refused() -> None:
    with pytest.raises(BatchBySpeedError, match=r"this program has not asked .* call trainer.batch_size\(SIZE\)"):
        Job(*OPTIMIZERS[0], asks=False)


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        (lambda: LocalSGD(weighting="normalized"), "mode local-sgd does not weight workers by samples"),
        (lambda: esync.algorithms.SCAFFOLD(), "mode scaffold does not weight workers by samples"),
        (lambda: esync.algorithms.ASGD(), "in mode async no worker waits"),
    ],
)
def test_mode_without_batches_by_speed_is_refused(algorithm: Any, reason: str) -> None:
    with pytest.raises(BatchBySpeedError, match=f"batch_by_speed: {reason}"):
        Job("sgd", {"learning_rate": 0.1}, algorithm=algorithm)


def test_batch_sampler_follows_the_trainer() -> None:
    class Sizes:
        given = iter([3, 3, 2, 4, 4])

        def batch_size(self, batch_size: int) -> int:
            assert batch_size == 3
            return next(self.given)

    assert [*iter(esync.BatchSampler(range(10), 3, Sizes()))] == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


def sizes_while(seconds: Any, rounds: int) -> list[list[int]]:
    """Sizes of the batches of three workers by `EQUAL_ROUNDS`, for each round in which they change.

    `seconds` returns what an iteration with 64 samples takes, given rank and round.
    """
    times = [StepTime(0.03), StepTime(3.0), StepTime(3.0)]
    divisions = [BatchDivision(times, rank, len(times), EQUAL_ROUNDS) for rank in range(len(times))]
    seen: list[list[int]] = []
    for round_ in range(rounds):
        sizes = [division.size(64) for division in divisions]
        if sizes not in seen[-1:]:
            seen.append(sizes)
        scalars: dict[str, float] = {}
        for rank, division in enumerate(divisions):
            division.begin(sizes[rank])
            division.end(seconds(rank, round_) * sizes[rank] / 64)
            scalars |= division.scalars()
        result: Any = SimpleNamespace(scalars=scalars, members=(0, 1, 2), round=round_ + 1)
        for division in divisions:
            division.follow(result)
    return seen


def test_batches_of_a_round_follow_each_device_though_another_stays_the_slowest():
    faster = sizes_while(lambda rank, round_: 0.03 if rank == 0 or (rank == 2 and round_ >= 20) else 3.0, 60)
    assert faster == [[64, 5, 5], [64, 5, 64]]
    slower = sizes_while(lambda rank, round_: 0.03 if rank == 0 else 6.0 if rank == 2 and round_ >= 20 else 3.0, 60)
    assert slower == [[64, 5, 5], [64, 5, 2]]
    assert sizes_while(lambda rank, round_: 0.03 if rank == 0 else 3.0 * (1 + 0.01 * (-1) ** round_), 60) == [
        [64, 5, 5]
    ]
