"""Gradients that a step cannot use: stale ones, and those that overflow."""

import numpy as np
import pytest

import esync
from esync.algorithms import ALGORITHMS, DCASGD, SyncSwitch
from esync.exchange.protocol.round_state import Limits
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import steady_world
from ..support.small_net import (
    BATCH,
    amp_backward,
    backward,
    differentiate,
    flat,
    local_trainer,
    make_net,
    scaled,
    take_steps,
)

ON_SERVERS = ["sync", "async", "ssp", "dcasgd", "sync-switch"]
SPARSE = ["gd-async", "dgc-async", "dgs"]


def make_trainer(net, algorithm, answers: int = 3, optimizer: str = "sgd", **options) -> esync.Trainer:
    """Trains in a world that always answers with the weights of the beginning."""
    world, limits = steady_world(flat(net), answers), Limits(samples=1000)
    options = {"learning_rate": 0.1, **options}
    trainer = esync.Trainer(net.collect_params(), optimizer, options, algorithm=algorithm, world=world, limits=limits)
    trainer.start()
    return trainer


# --- stale gradients ------------------------------------------------------------------------------


def half_backward(net, number: int) -> None:
    """A backward pass that leaves out the last layer."""
    data = mx.nd.array(np.random.default_rng(number).standard_normal((BATCH, 5)))
    differentiate(lambda: net[1](net[0](data)).square().sum())


@pytest.mark.parametrize(
    ("algorithm", "options", "moved_by"),
    [
        *((name, {"momentum": 0.9}, "momentum") for name in ON_SERVERS),
        *((name, {"wd": 0.1}, "weight decay") for name in (*ON_SERVERS, "gd-async")),
        ("sync", {"momentum": 0.9, "wd": 0.1}, "momentum and weight decay"),
        ("dgs", {}, "momentum"),
        ("dgc-async", {}, "momentum"),
        (DCASGD(adaptive=True), {}, "the running mean of the adaptive λ"),
        (
            SyncSwitch(switch_order="11", train_steps=(1, 100), hparams=("-", "momentum=0.9"), batch_size=BATCH),
            {"momentum": 0.0},
            None,
        ),
        (SyncSwitch(switch_order="1", train_steps=(9,), hparams=("momentum=0.9",), batch_size=BATCH), {}, "momentum"),
        ("sync", {"optimizer": "adam"}, "Adam's running means"),
        ("async", {"optimizer": "adamw", "wd": 0.1}, "weight decay and Adam's running means"),
        ("sync", {"optimizer": "rmsprop", "centered": True}, "RMSProp's running means"),
        ("sync", {"optimizer": "nag", "momentum": 0.9}, "momentum"),
        ("sync", {"optimizer": "adagrad"}, None),
        ("sync", {}, None),
        ("async", {}, None),
        (DCASGD(adaptive=False), {}, None),
    ],
)
def test_step_with_ignored_stale_gradient_leaves_parameter_out_or_is_refused(algorithm, options, moved_by):
    """The refusal names what would move the parameter without a gradient."""
    net = make_net()
    trainer = make_trainer(net, algorithm, **options)
    half_backward(net, 0)
    if moved_by is None:
        trainer.step(BATCH, ignore_stale_grad=True)
        sent = np.float32(trainer.world.made.sent[0].values)
        size = sum(p.data().size for p in net[2].collect_params().values())
        assert not sent[-size:].any()
        assert sent[:-size].any()
        return
    with pytest.raises(ValueError, match=f"net_dense1_bias is stale, .* and {moved_by} would go on without a gradient"):
        trainer.step(BATCH, ignore_stale_grad=True)
    assert trainer.world.made.sent == []


def test_step_with_ignore_stale_grad_and_no_stale_gradient_sends_as_usual():
    net = make_net()
    trainer = make_trainer(net, "sync", momentum=0.9, wd=0.1)
    backward(net, 0)
    trainer.step(BATCH, ignore_stale_grad=True)
    assert len(trainer.world.made.sent) == 1


@pytest.mark.parametrize("algorithm", ["local", "local-sgd", "dylu"])
def test_step_with_ignored_stale_gradient_and_local_optimizer_leaves_parameter_out(algorithm):
    net = make_net()
    options = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.1}
    if algorithm == "local":
        trainer = local_trainer(net, "sgd", options)
    else:
        trainer = make_trainer(net, ALGORITHMS[algorithm](local_iterations=9), **options)
    take_steps(net, trainer, 0)
    before = net[2].weight.data().asnumpy()
    half_backward(net, 1)
    trainer.step(BATCH, ignore_stale_grad=True)
    assert np.array_equal(net[2].weight.data().asnumpy(), before)


# --- overflows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [*ON_SERVERS, *SPARSE])
def test_step_with_overflowing_gradients_sends_nothing(algorithm):
    net = make_net()
    trainer = make_trainer(net, algorithm, answers=1)
    scaled(trainer)
    rounds, before = trainer.round, flat(net)
    for number in range(2):
        amp_backward(net, trainer, number, 1e38)
        trainer.step(BATCH)
        assert (trainer.abandoned, trainer.exchanged, trainer.round) == (True, False, rounds)
    assert trainer.world.made.sent == []
    assert trainer.world.recorder.take()["num_samples"] == 0
    assert trainer._amp_loss_scaler.loss_scale == 2.0**15  # takes effect one iteration after the overflow
    assert flat(net) == before
    if algorithm in ON_SERVERS:
        amp_backward(net, trainer, 3)
        trainer.step(BATCH)
        assert (trainer.abandoned, trainer.exchanged, trainer.round) == (False, True, rounds + 1)
        assert np.isfinite(trainer.world.made.sent[0].values).all()


@pytest.mark.parametrize("mean", [False, True])
def test_step_with_amp_sends_unscaled_gradients(mean):
    nets = make_net(), make_net()
    trainers = [make_trainer(net, "sync") for net in nets]
    scaled(trainers[0])
    amp_backward(nets[0], trainers[0], 0, 1 / BATCH if mean else 1.0)
    backward(nets[1], 0)
    trainers[0].step(1 if mean else BATCH, samples=BATCH)
    trainers[1].step(BATCH)
    with_amp, without = (trainer.world.made.sent[0].values for trainer in trainers)
    np.testing.assert_allclose(with_amp, without, rtol=1e-5)


@pytest.mark.parametrize("algorithm", ["sync", "local"])
def test_step_with_gradients_that_never_become_finite_raises_overflow_error(algorithm):
    net = make_net()
    trainer = local_trainer(net) if algorithm == "local" else make_trainer(net, algorithm)
    scaled(trainer)

    def go_on() -> None:
        for number in range(50):
            amp_backward(net, trainer, number, float("inf"))
            trainer.step(BATCH)

    with pytest.raises(OverflowError, match="overflow even with a loss scale of"):
        go_on()


def test_trial_restores_the_loss_scale():
    net = make_net()
    trainer = local_trainer(net)
    scaled(trainer)
    state, scale = dict(vars(trainer._amp_loss_scaler)), trainer._scale
    with trainer.trial():
        amp_backward(net, trainer, 0, 1e38)
        trainer.step(BATCH)
    assert vars(trainer._amp_loss_scaler) == state
    assert trainer._scale == scale


def test_checkpoint_restores_the_loss_scale(tmp_path):
    scales = []
    for resume in (False, True):
        net = make_net()
        checkpoints = esync.Checkpoints(tmp_path, every=3, resume=resume)
        trainer = local_trainer(net, checkpoints=checkpoints)
        scaled(trainer)
        trainer.start()
        scales.append(trainer._amp_loss_scaler.loss_scale)
        for number in range(3):
            amp_backward(net, trainer, number, 1e38 if number < 2 else 1.0)
            trainer.step(BATCH)
            checkpoints.save_if_due()
    assert scales == [2.0**16, 2.0**14]
