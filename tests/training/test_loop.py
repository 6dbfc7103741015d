"""The training loop: what belongs to an iteration, and batches of abandoned iterations."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import ESync
from esync.data import Batches, Partition
from esync.exchange.protocol.round_state import Limits
from esync.runtime.mxnet_import import mx
from esync.training.loop import Iteration, PartitionedData, train
from esync.training.unrecognized_classes import UnrecognizedClasses
from esync.world import RealWorld

from ..support.scripted_world import World
from ..support.small_net import flat, sgd_trainer

ROUNDS, BATCH, SAMPLES = 3, 4, 30


class Remembering(Batches):
    """Batches that keep a list of what was taken from them."""

    taken: list[list[float]]

    def __next__(self) -> tuple[np.ndarray, np.ndarray]:
        images, labels = super().__next__()
        self.taken.append([round(255 * value) for value in images[:, 0, 0, 0].tolist()])
        return images, labels


def numbered(kind: type[Batches]) -> Any:
    """Batches of images of one pixel, each with its number in it."""
    images = np.arange(SAMPLES, dtype=np.uint8)[:, np.newaxis, np.newaxis]
    return kind(images, np.zeros(SAMPLES, np.uint8), np.arange(SAMPLES), BATCH, seed=1)


def remembering() -> Remembering:
    batches = numbered(Remembering)
    batches.taken = []
    return batches


def dense() -> Any:
    net = mx.gluon.nn.Dense(2, in_units=1)
    net.initialize()
    return net


class Kept:
    """The rounds of a run: num_samples of each, and which batches had been taken by then."""

    def __init__(self, batches: Remembering) -> None:
        self.batches = batches
        self.samples: list[int] = []
        self.until: list[int] = []

    def done(self, trainer: esync.Trainer) -> None:
        self.samples.append(trainer.world.recorder.take()["num_samples"])
        self.until.append(len(self.batches.taken))

    def poll(self, trainer: esync.Trainer) -> None:
        pass

    def end(self, trainer: esync.Trainer) -> None:
        pass


def test_loop_reuses_the_batch_of_an_abandoned_iteration():
    batches, net = remembering(), dense()
    model = [0.0] * len(flat(net))
    world = World(
        ready=[True] * ROUNDS,
        answers=[(model, number == ROUNDS, True) for number in range(1, ROUNDS + 1)],
        prepare=lambda exchange: setattr(exchange, "beginning", model),
    )
    trainer = sgd_trainer(net, ESync(query_mode="delayed-ack"), world=world)
    trainer.start()
    world.state_server.round_trip = 5.0  # an iteration takes 2 s, so READY comes in the middle of the fourth

    class Slow(Iteration):
        def run(self, recorder: Any) -> int:
            samples = super().run(recorder)
            world.device.time += 1.5  # of the 2 s that the device takes, and what is missing there comes behind
            return samples

    rounds = Kept(batches)
    world.device.seconds = 0.5
    iteration = Slow(net, mx.gluon.loss.SoftmaxCrossEntropyLoss(), batches, 1, mx.cpu())
    train(trainer, iteration, rounds)
    assert rounds.samples == [3 * BATCH] * ROUNDS  # δ − 1 = 2 iterations fit into the round trip
    assert rounds.until == [4, 8, 12]  # one more was begun in each round, and given up
    taken = batches.taken
    assert taken[3] == taken[4]
    assert taken[7] == taken[8]
    used = [batch for number, batch in enumerate(taken) if number not in (3, 7, 11)]
    undisturbed = numbered(Batches)
    assert used == [[round(255 * value) for value in next(undisturbed)[0][:, 0, 0, 0].tolist()] for _ in used]


def test_loop_excludes_setup_from_the_first_iteration_time():
    batches, net = remembering(), dense()
    world = RealWorld(step_time=2.0)
    trainer = sgd_trainer(net, "local", world=world, limits=Limits(rounds=1))
    trainer.start()
    time.sleep(2.1)  # logs are opened, the evaluating process is started
    train(trainer, Iteration(net, mx.gluon.loss.SoftmaxCrossEntropyLoss(), batches, 1, mx.cpu()), Kept(batches))
    assert world.device.iterations == 1
    assert world.device.overruns == 0


@pytest.mark.parametrize(
    ("absent_too", "members", "resting", "holders"),
    [
        (False, (0, 1, 2), (), {"shirt": [0], "bag": [1, 2]}),
        (False, (0, 1, 2), (2,), {"shirt": [0], "bag": [0, 1]}),  # left out: its samples are dealt to the others
        (False, (0, 1), (), {"shirt": [0], "bag": [1, 2]}),  # gone, and its samples with it
        (True, (0, 1), (), {"shirt": [0], "bag": [0, 1]}),
        (True, (1, 2), (), {"shirt": [1, 2], "bag": [1, 2]}),
    ],
)
def test_holders_of_a_class_are_those_to_whom_its_samples_have_been_dealt(absent_too, members, resting, holders):
    labels = np.repeat([0, 1], [20, 40])
    dealt = Partition(np.split(np.arange(60), 3), np.empty(0, np.int64))
    callback = UnrecognizedClasses()

    def hold(shares: Any) -> None:
        callback.hold(["shirt", "bag"], labels, shares)

    hold(dealt.shares)
    data = PartitionedData(dealt, 0, absent_too, lambda indices: numbered(Batches), hold)
    data.batches(SimpleNamespace(rank=1, members=members, resting=resting))  # type: ignore[arg-type]
    assert callback.holders == holders
