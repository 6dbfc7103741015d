"""Trainer.trial, which measures an iteration and changes nothing."""

import pytest

import esync
from esync.algorithms import Local
from esync.runtime.mxnet_import import mx
from esync.world import RealWorld

from ..support.small_net import OPTIMIZERS, backward, local_trainer, make_net, nn, sgd_trainer, take_steps, values


def scheduled() -> dict:
    return {"learning_rate": 0.1, "momentum": 0.9, "lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.5)}


def common() -> dict:
    return {"lr_scheduler": esync.CommonLRScheduler(mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.4), "rounds")}


@pytest.mark.parametrize(
    ("optimizer", "options"), [*((o, lambda p=p: dict(p)) for o, p in OPTIMIZERS), ("sgd", scheduled), ("sgd", common)]
)
@pytest.mark.parametrize("before", [0, 2])
def test_trial_leaves_weights_and_optimizer_unchanged(optimizer, options, before):
    """A run with trials equals one without, bit for bit, for every optimizer."""
    tried, untried = make_net(), make_net()
    one, other = local_trainer(tried, optimizer, options()), local_trainer(untried, optimizer, options())
    for number in range(before):
        for trainer, net in ((one, tried), (other, untried)):
            take_steps(net, trainer, number)
    weights, rate = values(tried), one.learning_rate
    for number in range(100, 103):
        with one.trial():
            take_steps(tried, one, number)
            assert values(tried) != weights
        assert values(tried) == weights
        assert one.learning_rate == rate
    assert (one.round, one.world.recorder.samples) == (before, other.world.recorder.samples)
    for number in range(10, 14):
        for trainer, net in ((one, tried), (other, untried)):
            take_steps(net, trainer, number)
        assert values(tried) == values(untried)
        assert one.learning_rate == other.learning_rate


def test_trial_that_raises_leaves_everything_unchanged():
    net = make_net()
    trainer = local_trainer(net, "adam", {"learning_rate": 0.1})
    weights = values(net)

    def fail() -> None:
        with trainer.trial():
            take_steps(net, trainer, 0)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert values(net) == weights
    take_steps(net, trainer, 1)
    assert trainer.round == 1


def test_trial_with_deferred_shapes_names_the_parameter():
    net = nn.Dense(3, prefix="later_")
    net.initialize()
    trainer = local_trainer(net)
    with pytest.raises(ValueError, match="later_weight"), trainer.trial():
        backward(net, 0)


class Spy(Local):
    """Remembers the capability that it finds at its start."""

    def start(self, context):
        super().start(context)
        self.capability = context.capability()


@pytest.mark.parametrize("step_time", [None, 50.0])
def test_trainer_start_after_trials_knows_the_capability_from_the_last_one(step_time):
    net, spy = make_net(), Spy()
    trainer = sgd_trainer(net, spy, world=RealWorld(step_time))
    with trainer.trial():
        take_steps(net, trainer, 0)
    trainer.start()
    assert (spy.capability == step_time) if step_time else (0 < spy.capability < 50)
    trainer.start()  # is there already
    assert trainer.algorithm is spy
