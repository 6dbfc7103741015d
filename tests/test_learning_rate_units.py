"""Learning rates of the command line multiply the gradient summed over the batch; nothing else
does.
"""

import argparse
from collections.abc import Callable

import numpy as np
import pytest

import esync
from esync.algorithms import DCASGD, SSGD, Algorithm, DGCAsync
from esync.arguments import read
from esync.data import find_data_dir
from esync.rules import DelayCompensatedSGDRule, Step
from esync.runtime.mxnet_import import mx
from esync.simulate import gradients
from esync.simulate.simulation import Simulation
from esync.training import worker_setup

from .simulate.modelling import cluster
from .support.small_net import BATCH, backward, flat, make_net, take_steps

RATE, DECAY = 0.01, 0.05  # such that both leave a mark on the weights


def flags(*words: str) -> argparse.Namespace:
    return read("worker", "a worker", ["--batch-size", str(BATCH), *words])


# --- on one worker, without an exchange -----------------------------------------------------------


#: Normalizing optimizers' epsilon and weight decay are relative to the mean gradient.
OPTIMIZERS = {
    **dict.fromkeys(("sgd", "nag"), BATCH),
    **dict.fromkeys(("adam", "adagrad", "rmsprop", "nadam", "lars", "signum", "lamb"), 1),
}


@pytest.mark.parametrize(
    ("optimizer", "times", "extra"),
    [
        *((name, times, {}) for name, times in OPTIMIZERS.items()),
        *((name, BATCH, {"momentum": 0.9}) for name in ("sgd", "nag")),
    ],
)
def test_learning_rate_flag_equals_gluon_with_batch_size_times_the_rate_or_the_rate_itself(optimizer, times, extra):
    ours, theirs = make_net(), make_net()
    words = [word for name, value in extra.items() for word in (f"--{name}", str(value))]
    options = flags("-m", "local", "--optimizer", optimizer, "-l", str(RATE), "--weight-decay", str(DECAY), *words)
    trainer = worker_setup.make_trainer(ours, options, None, 100)
    settings = {"learning_rate": RATE * times, "wd": DECAY, **extra}
    gluon = mx.gluon.Trainer(theirs.collect_params(), optimizer, settings, kvstore=None)
    for net, subject in ((ours, trainer), (theirs, gluon)):
        take_steps(net, subject, *range(3))
    np.testing.assert_allclose(flat(ours), flat(theirs), rtol=1e-5 * (times != 1), atol=1e-7 * (times != 1))


def steps_of(optimizer: str, rate: float, factor: float) -> np.ndarray:
    """A few weights after a few gradients times a factor."""
    random = np.random.default_rng(0)
    weights = mx.nd.array(random.standard_normal((4, 3)))
    update = mx.optimizer.get_updater(mx.optimizer.create(optimizer, learning_rate=rate, wd=0.0))
    for _ in range(4):
        update(0, mx.nd.array(factor * random.standard_normal((4, 3))), weights)
    return weights.asnumpy()


#: Without a rate or without a method: there is nothing to classify. SGLD adds noise.
UNCLASSIFIED = {"adadelta", "test", "sgld", "dcasgd"}


@pytest.mark.parametrize("optimizer", sorted(set(mx.optimizer.Optimizer.opt_registry) - UNCLASSIFIED))
def test_proportional_lists_the_optimizers_with_steps_proportional_to_the_gradient(optimizer):
    try:
        proportional = np.allclose(steps_of(optimizer, 64 * RATE, 1.0), steps_of(optimizer, RATE, 64.0), rtol=1e-5)
        different = not np.allclose(steps_of(optimizer, RATE, 1.0), steps_of(optimizer, RATE, 64.0), rtol=1e-5)
    except (TypeError, AttributeError, mx.base.MXNetError):
        pytest.skip("it needs more than a learning rate")
    assert (proportional and different) == (optimizer in worker_setup.PROPORTIONAL)


def test_clip_gradient_is_relative_to_the_mean_gradient():
    ours, theirs = make_net(), make_net()
    settings = {"learning_rate": RATE, "wd": DECAY, "clip_gradient": 0.01}
    summed = esync.Trainer(ours.collect_params(), "sgd", settings, algorithm="local", gradient_scale=BATCH)
    gluon = mx.gluon.Trainer(theirs.collect_params(), "sgd", {**settings, "learning_rate": RATE * BATCH}, kvstore=None)
    for net, subject in ((ours, summed), (theirs, gluon)):
        take_steps(net, subject, *range(3))
    np.testing.assert_allclose(flat(ours), flat(theirs), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("optimizer", ["adagrad", "adadelta", "adamw"])
def test_decoupled_weight_decay_is_independent_of_the_gradient_scale(optimizer):
    """Gradients are zero, so only the decay acts."""
    nets = make_net(), make_net()
    settings = {"learning_rate": 0.01, "wd": 0.1}
    for net, scale in zip(nets, (BATCH, 1.0), strict=True):
        trainer = esync.Trainer(net.collect_params(), optimizer, settings, algorithm="local", gradient_scale=scale)
        for number in range(3):
            backward(net, number)
            for parameter in net.collect_params().values():
                parameter.zero_grad()
            trainer.step(BATCH)
    assert flat(nets[0]) == flat(nets[1])
    assert flat(nets[0]) != flat(make_net())


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), float("inf")])
def test_gradient_scale_that_is_no_positive_number_is_refused(scale):
    with pytest.raises(ValueError, match="gradient_scale"):
        esync.Trainer(make_net().collect_params(), "sgd", {}, algorithm="local", gradient_scale=scale)


# --- the rules ------------------------------------------------------------------------------------


def test_dcasgd_lambda_on_the_sum_acts_batch_size_times_as_strongly():
    weights, gradient, sent = np.float32([3.0]), np.float32([4.0]), np.float32([1.0])
    step = Step(learning_rate=1.0, sent=sent, gradient_scale=8)
    mean, _ = DelayCompensatedSGDRule(0.5)(weights, gradient, None, step)
    published, _ = DelayCompensatedSGDRule(0.5, on="sum")(weights, gradient, None, step)
    assert weights - gradient - mean == 0.5 / 8 * 16 * 2
    assert weights - gradient - published == 0.5 * 16 * 2


# --- with exchanges: real gradients, commits and servers, in modelled time ------------------------

WORDS = ("--network=lenet", "--batch-size=16", "--partition=contiguous", "--no-evaluation", "--rounds=4")


def trained(monkeypatch, speeds, *words: str, by_api: Callable[[], Algorithm] | None = None) -> np.ndarray:
    """Return the workers' final weights.

    `by_api` replaces what the flags say, with the same rate on the mean gradient.
    """
    options = flags(*WORDS, f"--data-dir={find_data_dir(None, 'fashion-mnist')}", *words)

    def make_trainer(net, options, world, samples, **_):
        settings = {"learning_rate": 0.005 * 16, "wd": options.weight_decay, "momentum": options.momentum or 0.0}
        limits = worker_setup.make_limits(options, samples)
        return esync.Trainer(net.collect_params(), "sgd", settings, algorithm=by_api(), limits=limits, world=world)

    with monkeypatch.context() as patch:
        if by_api is not None:
            patch.setattr(gradients, "make_trainer", make_trainer)
        numerics = gradients.GradientNumerics(options, len(speeds))
        Simulation(cluster(*speeds), options, numerics).run()
    return np.concatenate([flat(numerics._nets[rank]) for rank in range(len(speeds))])


#: A compensation so strong that twice as much of it shows.
LAMBDA = 50.0
#: Flags → the same by the API.
SAME = {
    "async -dcasgd 1 --dcasgd-lambda 50": lambda: DCASGD(strength=LAMBDA),
    "async -dcasgd 1 --dcasgd-lambda 50 --dcasgd-adaptive --weight-decay 0.05": lambda: DCASGD(
        strength=LAMBDA, adaptive=True
    ),
    "async -dcasgd 1 --dcasgd-lambda-on sum --dcasgd-lambda 50": lambda: DCASGD(strength=16 * LAMBDA),
    "sync --weight-decay 0.05 --momentum 0.5": SSGD,
    "dgc-async --weight-decay 0.05 --dgc-clip 0.5 --sparse-ratio 0.1": lambda: DGCAsync(ratio=0.1, clip=0.5),
}


@pytest.mark.parametrize("words", SAME)
def test_flags_equal_the_api_with_batch_size_times_the_rate(monkeypatch, words):
    mode, *arguments = words.split()
    arguments += ["-l", "0.005"]
    by_flags = trained(monkeypatch, (0.1, 0.25), "-m", mode, *arguments)
    by_api = trained(monkeypatch, (0.1, 0.25), "-m", mode, *arguments, by_api=SAME[words])
    np.testing.assert_allclose(by_flags, by_api, rtol=1e-4, atol=1e-6)


def test_weight_decay_of_one_worker_equals_that_of_local_training(monkeypatch):
    alone = trained(monkeypatch, (0.1,), "-m", "local", "-l", "0.005", "--weight-decay", "0.05")
    for mode, rate, *arguments in (
        ("sync", "-l"),
        ("async", "-l"),
        ("esync", "-ll", "--local-iterations", "1"),
        ("sync-switch", "-l", "--bsp-share", "0.5", "--epochs", "0.001"),
    ):
        one = trained(monkeypatch, (0.1,), "-m", mode, "--weight-decay", "0.05", rate, "0.005", *arguments)
        np.testing.assert_allclose(one, alone, rtol=1e-4, atol=1e-6, err_msg=mode)
