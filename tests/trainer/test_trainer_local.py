"""esync.Trainer with algorithm "local", against gluon.Trainer."""

import numpy as np
import pytest

import esync
from esync.runtime.mxnet_import import mx

from ..support.small_net import (
    BATCH,
    OPTIMIZERS,
    backward,
    local_trainer,
    make_net,
    nn,
    sgd_trainer,
    take_steps,
    values,
)


def test_trainer_local_follows_set_learning_rate():
    ours, theirs = make_net(), make_net()
    trainer = local_trainer(ours)
    plain = mx.gluon.Trainer(theirs.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=None)
    assert trainer.learning_rate == 0.1
    for subject, net in ((trainer, ours), (plain, theirs)):
        subject.set_learning_rate(0.025)
        take_steps(net, subject, 0)
    assert trainer.learning_rate == 0.025
    assert values(ours) == values(theirs)


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
def test_trainer_load_states_restores_saved_states(tmp_path, optimizer, options):
    net = make_net()
    trainer = local_trainer(net, optimizer, options)
    take_steps(net, trainer, *range(3))
    trainer.save_states(str(tmp_path / "states"))
    net.save_parameters(str(tmp_path / "weights"))

    other = make_net()
    other.load_parameters(str(tmp_path / "weights"))
    resumed = local_trainer(other, optimizer, options)
    resumed.load_states(str(tmp_path / "states"))
    for number in range(3, 6):
        for subject, of in ((trainer, net), (resumed, other)):
            take_steps(of, subject, number)
        assert values(other) == values(net)


def test_trainer_local_with_stale_gradient_warns_as_gluon_does():
    net = make_net()
    trainer = local_trainer(net)
    take_steps(net, trainer, 0)
    with pytest.raises(UserWarning, match="has not been updated"):
        trainer.step(BATCH)
    before = values(net)
    trainer.step(BATCH, ignore_stale_grad=True)
    assert values(net) == before


def test_trainer_leaves_frozen_parameters_unchanged():
    net = make_net()
    net[0].collect_params().setattr("grad_req", "null")
    frozen = [p.data().asnumpy().tobytes() for p in net[0].collect_params().values()]
    trained = net[2].weight.data().asnumpy()
    trainer = local_trainer(net, "adam", {"learning_rate": 0.1})
    take_steps(net, trainer, *range(2))
    assert [p.data().asnumpy().tobytes() for p in net[0].collect_params().values()] == frozen
    assert not np.array_equal(net[2].weight.data().asnumpy(), trained)


def test_trainer_with_deferred_shapes_trains_after_the_first_batch():
    net = nn.Dense(3)
    net.initialize()
    trainer = local_trainer(net)
    backward(net, 0)
    before = net.weight.data().asnumpy()
    trainer.step(BATCH)
    assert not np.array_equal(net.weight.data().asnumpy(), before)


def recorded(trainer: esync.Trainer) -> tuple[int, int]:
    """Take the phases of a trainer: the number of iterations, and of their times."""
    taken = trainer.world.recorder.take()
    return len(taken["time"]), len(taken["iteration_times"])


@pytest.mark.parametrize("algorithm", ["local", "local-sgd"])
def test_phases_that_nobody_takes_are_those_of_the_newest_iterations(monkeypatch, algorithm):
    monkeypatch.setattr("esync.trainer.NEWEST_ITERATIONS", 5)
    net = make_net()
    trainer = sgd_trainer(net, algorithm)
    for _ in range(2):
        take_steps(net, trainer, *range(12))
        assert max(recorded(trainer)) == 5


def test_phases_that_a_run_takes_are_all_kept(monkeypatch):
    class Takes(esync.TrainerCallback):
        takes_phases = True

    monkeypatch.setattr("esync.trainer.NEWEST_ITERATIONS", 5)
    net = make_net()
    trainer = sgd_trainer(net, "local", run=Takes())
    take_steps(net, trainer, *range(12))
    assert recorded(trainer)[1] == 12
