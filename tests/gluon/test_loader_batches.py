"""Trainer.batches: epochs, the end of the run, unused batches, phases, positions in checkpoints."""

from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import ESync
from esync.exchange.protocol.round_state import Limits
from esync.gluon.loader_batches import NoBatchesError
from esync.runtime.mxnet_import import mx
from esync.runtime.phase_timer import GET_BATCH

from ..support.scripted_world import World, steady_world
from ..support.small_net import flat, local_trainer, make_net, sgd_trainer, take_steps

data = mx.gluon.data


def train(loader: Any, rounds: int, **options: Any) -> list[Any]:
    """Train for so many rounds on `trainer.batches(loader)`; the batches that it gave."""
    net, seen = make_net(), []
    trainer = local_trainer(net, limits=Limits(rounds=rounds))
    for batch in trainer.batches(loader, **options):
        seen.append(batch)
        take_steps(net, trainer, len(seen))
    return seen


def numbers(batches: list[Any]) -> list[list[float]]:
    return [batch.asnumpy().reshape(-1).tolist() for batch in batches]


def test_batches_of_a_run_that_is_over_are_none():
    net = make_net()
    trainer = local_trainer(net, limits=Limits(rounds=1))
    take_steps(net, trainer, 0)
    assert list(trainer.batches(["b"])) == []


def test_batches_of_a_data_loader_cross_epochs_with_an_incomplete_batch():
    loader = data.DataLoader(data.SimpleDataset(np.arange(5.0)), batch_size=2)
    assert numbers(train(loader, 4)) == [[0, 1], [2, 3], [4], [0, 1]]


def test_batches_of_a_data_iter_reset_it_for_each_epoch():
    seen = train(mx.io.NDArrayIter(np.arange(4.0), batch_size=2), 5)
    assert numbers([batch.data[0] for batch in seen]) == [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1]]


class Epochs:
    """A loader with `set_epoch`, as PyTorch's samplers have it."""

    def __init__(self) -> None:
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        return iter([(self.epoch, 0), (self.epoch, 1)])


def test_batches_call_set_epoch_and_begin_epoch_before_each_epoch():
    epochs = []
    assert train(Epochs(), 5, begin_epoch=epochs.append) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert epochs == [0, 1, 2]


def test_loader_that_rolls_over_may_have_epochs_without_a_batch():
    epochs = []
    loader = data.DataLoader(data.SimpleDataset(np.arange(2.0)), batch_size=5, last_batch="rollover")
    seen = train(loader, 3, begin_epoch=epochs.append)
    assert numbers(seen) == [[0, 1, 0, 1, 0], [1, 0, 1, 0, 1], [0, 1, 0, 1, 0]]
    assert epochs == list(range(8))


@pytest.mark.parametrize(
    ("loader", "text"),
    [
        ([], r"the list has no batch in epoch 0: it has no samples"),
        (data.DataLoader(data.SimpleDataset([1.0, 2.0]), 3, last_batch="discard"), r"the DataLoader .*'discard'"),
        (data.DataLoader(data.SimpleDataset([]), 3, last_batch="rollover"), r"the DataLoader .* it has no samples"),
        (iter(["a"]), r"the list_iterator has no batch in epoch 1: it can be gone through only once.*DataLoader"),
    ],
    ids=["empty list", "discarded batch", "nothing to roll over", "iterator"],
)
def test_batches_of_a_loader_without_batches_are_refused_by_name(loader, text):
    with pytest.raises(NoBatchesError, match=text):
        train(loader, 3)


def test_batches_of_an_object_without_iteration_are_refused_by_name():
    def generate() -> Any:
        yield "a"

    with pytest.raises(TypeError, match="a function cannot be gone through in a for statement"):
        local_trainer(make_net()).batches(generate)


def test_batches_time_the_loading_as_get_batch():
    net = make_net()
    trainer = local_trainer(net, world=(world := World()))

    class Slow:
        def __iter__(self) -> Any:
            for _ in range(3):
                world.device.time += 0.25
                yield "batch"

    batches = trainer.batches(Slow())
    for loads in (1, 2):  # two batches for one step, as with accumulated gradients
        for _ in range(loads):
            next(batches)
        take_steps(net, trainer, loads)
        assert world.recorder.take()["time"]["0"][GET_BATCH] == 0.25 * loads


def clustered(net: Any, algorithm: Any, beginning: float, **script: Any) -> esync.Trainer:
    """A trainer among scripted workers, all of whose exchanges lead to the same weights."""
    return sgd_trainer(net, algorithm, world=steady_world([beginning] * len(flat(net)), **script))


def test_batch_of_an_abandoned_step_is_handed_out_again_once():
    """READY for the first iteration takes 5 s, an iteration 2 s: it arrives in the fourth one."""
    net = make_net()
    algorithm = ESync(state_server="unused", query_mode="delayed-ack")
    trainer = clustered(net, algorithm, 0.1, ready=[True] * 9, round_trip=5.0)
    trainer.start()
    batches = trainer.batches(range(100))
    for number in range(4):
        assert next(batches) == number
        if number == 3:
            trainer.world.device.sleep(1.0)
        take_steps(net, trainer, number)
        assert trainer.abandoned == (number == 3)
    assert batches.state() == {"epoch": 0, "batch": 3, "seeds": batches._seeds}
    assert next(batches) == 3
    assert batches.state() == {"epoch": 0, "batch": 4, "seeds": batches._seeds}
    assert next(batches) == 4, "without another step the next batch follows"


def test_batches_go_on_at_a_restored_position():
    epochs: list[int] = []
    net = make_net()
    trainer = local_trainer(net)
    batches = trainer.batches(Epochs(), epochs.append)
    for _ in range(3):
        next(batches)
    state = batches.state()
    assert state == {"epoch": 1, "batch": 1, "seeds": []}
    resumed = trainer.batches(Epochs(), epochs.append)
    next(resumed)  # as a program whose first step starts the trainer
    epochs.clear()
    resumed.restore(state)
    assert (next(resumed), epochs) == ((1, 1), [1])
    assert (next(resumed), epochs) == ((2, 0), [1, 2])


def test_batches_restored_to_a_shorter_loader_say_so(caplog):
    batches = local_trainer(make_net()).batches(Epochs())
    batches.restore({"epoch": 4, "batch": 7, "seeds": []})
    assert next(batches) == (5, 0)
    assert "7 batches or more at the checkpoint, and has 2 now" in caplog.text


@pytest.mark.parametrize("started_first", [True, False])
def test_batches_of_a_resumed_run_go_on_where_its_checkpoint_was(tmp_path, started_first):
    net = make_net()
    checkpoints = esync.Checkpoints(tmp_path, every=1)
    trainer = local_trainer(net, checkpoints=checkpoints, limits=Limits(rounds=3))
    dataset = data.SimpleDataset(np.arange(8.0))
    seen = []
    for batch in trainer.batches(data.DataLoader(dataset, 2, shuffle=True), np.random.seed):
        seen.append(batch)
        take_steps(net, trainer, len(seen))
        checkpoints.save_if_due()
    trainer.close()
    np.random.seed(0)
    order = np.arange(8)
    np.random.shuffle(order)
    assert numbers(seen) == order[:6].reshape(3, 2).tolist()

    net = make_net()
    checkpoints = esync.Checkpoints(tmp_path, every=1, resume=True)
    trainer = local_trainer(net, checkpoints=checkpoints, limits=Limits(rounds=4))
    if started_first:
        trainer.start()
    batches = trainer.batches(data.DataLoader(dataset, 2, shuffle=True), np.random.seed)
    if not started_first:
        next(batches)
        trainer.start()
    assert numbers([next(batches)]) == [order[6:].tolist()]


def test_batch_of_a_step_that_only_took_over_weights_is_handed_out_again():
    net = make_net()
    trainer = clustered(net, "sync", 0.1)
    batches = trainer.batches(["a", "b"])
    assert next(batches) == "a"
    take_steps(net, trainer, 1)
    assert (trainer.round, next(batches)) == (0, "a")
    take_steps(net, trainer, 1)
    assert (trainer.round, next(batches)) == (1, "b")
