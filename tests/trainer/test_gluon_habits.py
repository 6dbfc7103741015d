"""What Gluon loops do beside the plain step: gradients of several batches, rates by layer."""

from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import ESync, LocalSGD
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import World
from ..support.small_net import BATCH, OPTIMIZERS, backward, flat, make_net, values

LOCAL = ["local", "local-sgd", "esync"]


def trainer_of(
    net: Any, algorithm: str, optimizer: str = "sgd", options: dict[str, Any] | None = None
) -> esync.Trainer:
    """A trainer among scripted workers; with updates the test ends before the first exchange."""
    made = {"local-sgd": LocalSGD(100), "esync": ESync(local_iterations=100)}.get(algorithm, algorithm)
    weights = flat(net)
    world = World(answers=[(weights, False, True)] * 9)
    world.prepare = lambda exchange: setattr(exchange, "beginning", weights)
    options = dict(options or {"learning_rate": 0.1})
    trainer = esync.Trainer(net.collect_params(), optimizer, options, algorithm=made, world=world)
    trainer.start()
    return trainer


def frozen_net() -> Any:
    """A network whose batch norm does not depend on how samples are cut into batches."""
    net = make_net()
    net[1]._kwargs["use_global_stats"] = True
    return net


def gradients(trainer: esync.Trainer) -> np.ndarray:
    """What was sent in the last exchange."""
    return np.float32(trainer.world.made.sent[-1].values)  # type: ignore[attr-defined]


@pytest.mark.parametrize("algorithm", [*LOCAL, "sync"])
def test_gradients_added_over_batches_step_as_one_big_batch(algorithm):
    parts, whole = frozen_net(), frozen_net()
    adding, at_once = trainer_of(parts, algorithm), trainer_of(whole, algorithm)
    parts.collect_params().setattr("grad_req", "add")
    for parameter in parts.collect_params(".*running.*").values():
        parameter.grad_req = "null"
    for numbers in ([1, 2, 3], [4, 5, 6]):
        for number in numbers:
            backward(parts, number)
        adding.step(len(numbers) * BATCH)
        parts.collect_params().zero_grad()

        whole_batch(whole, numbers)
        at_once.step(len(numbers) * BATCH)
        if algorithm == "sync":
            assert np.abs(gradients(at_once)).max() > 0.01
            assert np.allclose(gradients(adding), gradients(at_once), rtol=1e-4, atol=1e-6)
    assert np.allclose(flat(parts), flat(whole), rtol=1e-4, atol=1e-6)
    if algorithm != "sync":
        assert not np.allclose(flat(parts), flat(frozen_net()), atol=1e-3)


def whole_batch(net: Any, numbers: list[int]) -> None:
    """Leave the gradient of the small batches with these numbers, taken as one."""
    from ..support.small_net import batch

    data, label = (mx.nd.concat(*parts, dim=0) for parts in zip(*map(batch, numbers), strict=True))
    with mx.autograd.record():
        loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label)
    loss.backward()


@pytest.mark.parametrize("algorithm", LOCAL)
@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
def test_lr_mult_and_wd_mult_are_gluons_where_the_optimizer_is_the_workers(algorithm, optimizer, options):
    options = {**options, "wd": 0.02}
    nets = [make_net() for _ in range(3)]
    for net in nets[:2]:
        net[0].collect_params().setattr("lr_mult", 0.1)
        net[2].weight.wd_mult = 5.0
    trainers = [
        trainer_of(nets[0], algorithm, optimizer, options),
        mx.gluon.Trainer(nets[1].collect_params(), optimizer, dict(options), kvstore=None),
        mx.gluon.Trainer(nets[2].collect_params(), optimizer, dict(options), kvstore=None),
    ]
    for number in range(4):
        for net, trainer in zip(nets, trainers, strict=True):
            backward(net, number)
            trainer.step(BATCH)
    assert values(nets[0]) == values(nets[1]) != values(nets[2])


@pytest.mark.parametrize(("attached", "told"), [(False, True), (True, False)])
def test_a_first_batch_norm_whose_statistics_stay_as_they_began_is_named(attached, told, caplog):
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.BatchNorm(scale=False, center=False), mx.gluon.nn.Dense(3))
    net.initialize()
    inputs = mx.nd.random.uniform(1, 2, shape=(BATCH, 2))
    net(inputs)
    trainer = trainer_of(net, "local")
    for _ in range(2):
        if attached:
            inputs.attach_grad()
        with mx.autograd.record():
            loss = net(inputs).sum()
        loss.backward()
        trainer.step(BATCH)
    assert caplog.text.count("net_batchnorm0_running_mean") == told
    assert bool(net[0].running_mean.data().asnumpy().any()) == attached
