import itertools
import random
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import esync
from esync.gluon.loader_batches import LoaderBatches
from esync.gluon.randomness import generator_digests, reseed, seed_mxnet
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import World


def trainer(rank: int = 0, exchanges: int = 0, local_iterations: int = 0, exchanged: bool = False) -> SimpleNamespace:
    return SimpleNamespace(rank=rank, exchanges=exchanges, local_iterations=local_iterations, exchanged=exchanged)


def draw() -> tuple[bytes, float, float]:
    """What a program draws with each of the generators."""
    layer = mx.gluon.nn.Dropout(0.5)
    with mx.autograd.record():
        mask = layer(mx.nd.ones((50,))).asnumpy().tobytes()
    return mask, np.random.random(), random.random()


def test_reseed_at_the_same_place_draws_the_same():
    draws = []
    for _ in range(2):
        reseed(trainer(1, 2, 3), seed=4)
        draws.append(draw())
        draw()
    assert draws[0] == draws[1]


def test_reseed_at_every_place_draws_differently():
    draws = set()
    places = list(itertools.product(range(2), range(2), range(2), range(2)))
    for rank, exchanges, iteration, seed in places:
        reseed(trainer(rank, exchanges, iteration), seed)
        draws.add(draw())
    assert [len(set(column)) for column in zip(*draws, strict=True)] == [len(places)] * 3


def test_reseed_after_an_exchange_begins_a_round():
    reseed(trainer(exchanges=2, local_iterations=5, exchanged=True), seed=0)
    after = draw()
    reseed(trainer(exchanges=2, local_iterations=0), seed=0)
    assert draw() == after


def seed_all() -> None:
    """Seed as programs do at their top."""
    np.random.seed(5)
    random.seed(5)
    mx.random.seed(5)


def test_seed_mxnet_by_rank_follows_from_the_seed_of_the_program():
    draws = []
    for rank in (0, 0, 1):
        seed_all()
        seed_mxnet(rank)
        draws.append(draw())
    masks, numpy, python = zip(*draws, strict=True)
    assert masks[0] == masks[1] != masks[2]
    assert len(set(numpy)) == len(set(python)) == 1


def test_generator_digests_tell_states_apart():
    seed_all()
    first = generator_digests()
    assert generator_digests() == first
    np.random.random()
    assert generator_digests() == {"NumPy's": generator_digests()["NumPy's"], "Python's": first["Python's"]}
    assert generator_digests()["NumPy's"] != first["NumPy's"]


class Draws(mx.gluon.data.Dataset):
    """Samples that are random numbers of NumPy, Python and MXNet."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> np.ndarray:
        number = mx.nd.random.randint(0, 2**20, shape=(1,)).asnumpy()[0]
        return np.array([index, np.random.randint(2**20), random.getrandbits(20), number], np.float32)


def epochs(
    rank: int,
    processes: int = 0,
    begin_epoch: Callable[[int], None] | None = None,
    workers: int = 3,
    position: dict[str, Any] | None = None,
) -> tuple[list[list[float]], LoaderBatches[Any]]:
    """Two epochs' samples of a worker, or what is left of them after a position."""
    seed_all()
    trainer = SimpleNamespace(rank=rank, workers=workers, start=lambda: None, finished=False, abandoned=False, steps=0)
    trainer.world, trainer.paused = World(), lambda: nullcontext()
    shard = esync.shard(Draws(), trainer)
    batches = LoaderBatches(
        trainer, mx.gluon.data.DataLoader(shard, 1, shuffle=True, num_workers=processes), begin_epoch
    )
    remaining = 2 * len(shard)
    if position is not None:
        batches.restore(position)
        remaining -= position["epoch"] * len(shard) + position["batch"]
    return [next(batches).asnumpy()[0].tolist() for _ in range(remaining)], batches


@pytest.mark.parametrize(("processes", "begin_epoch"), [(0, None), (2, np.random.seed)])
def test_batches_of_ranks_draw_apart_though_the_program_has_seeded_them_alike(processes, begin_epoch):
    seen = [sample for rank in range(3) for sample in epochs(rank, processes, begin_epoch)[0]]
    for numbers in list(zip(*seen, strict=True))[1:]:
        assert len(set(numbers)) == len(seen)


def test_batches_of_a_resumed_rank_are_in_the_same_order():
    samples, batches = epochs(1)
    assert epochs(1)[0] == samples, "the program's seeds repeat a run"
    remaining, _ = epochs(1, position={**batches.state(), "epoch": 1, "batch": 3})
    assert [sample[0] for sample in remaining] == [sample[0] for sample in samples[8 + 3 :]]


def test_batches_of_a_worker_alone_leave_the_generators_to_the_program():
    samples, _ = epochs(0, workers=1)
    seed_all()
    order = list(range(24))
    np.random.shuffle(order)
    shard = esync.shard(range(24), SimpleNamespace(rank=0, workers=1, start=lambda: None))
    assert [sample[0] for sample in samples[:1]] == [shard[order[0]]]
