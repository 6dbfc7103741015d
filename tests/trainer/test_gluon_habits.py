"""What Gluon loops do beside the plain step: gradients of several batches, rates by layer."""

from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import ESync, LocalSGD
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import World, steady_world
from ..support.small_net import (
    BATCH,
    OPTIMIZERS,
    backward,
    batch,
    differentiate,
    flat,
    make_net,
    nn,
    sgd_trainer,
    take_steps,
    values,
)

LOCAL = ["local", "local-sgd", "esync"]


def trainer_of(
    net: Any, algorithm: str, optimizer: str = "sgd", options: dict[str, Any] | None = None
) -> esync.Trainer:
    """A trainer among scripted workers; with updates the test ends before the first exchange."""
    instance = {"local-sgd": LocalSGD(local_iterations=100), "esync": ESync(local_iterations=100)}.get(
        algorithm, algorithm
    )
    options = dict(options or {"learning_rate": 0.1})
    trainer = esync.Trainer(net.collect_params(), optimizer, options, algorithm=instance, world=steady_world(flat(net)))
    trainer.start()
    return trainer


def frozen_net() -> Any:
    """A network whose batch norm does not depend on how samples are cut into batches."""
    net = make_net()
    net[1]._kwargs["use_global_stats"] = True
    return net


def gradients(trainer: esync.Trainer) -> np.ndarray:
    """What was sent in the last exchange."""
    return np.float32(trainer.world.made.sent[-1].values)


@pytest.mark.parametrize("algorithm", [*LOCAL, "sync"])
def test_gradients_added_over_batches_step_as_one_big_batch(algorithm):
    parts, full = frozen_net(), frozen_net()
    adding, at_once = trainer_of(parts, algorithm), trainer_of(full, algorithm)
    parts.collect_params().setattr("grad_req", "add")
    for parameter in parts.collect_params(".*running.*").values():
        parameter.grad_req = "null"
    for numbers in ([1, 2, 3], [4, 5, 6]):
        for number in numbers:
            backward(parts, number)
        adding.step(len(numbers) * BATCH)
        parts.collect_params().zero_grad()

        whole_batch(full, numbers)
        at_once.step(len(numbers) * BATCH)
        if algorithm == "sync":
            assert np.abs(gradients(at_once)).max() > 0.01
            assert np.allclose(gradients(adding), gradients(at_once), rtol=1e-4, atol=1e-6)
    assert np.allclose(flat(parts), flat(full), rtol=1e-4, atol=1e-6)
    if algorithm != "sync":
        assert not np.allclose(flat(parts), flat(frozen_net()), atol=1e-3)


def whole_batch(net: Any, numbers: list[int]) -> None:
    """Leave the gradient of the small batches with these numbers, taken as one."""
    data, label = (mx.nd.concat(*parts, dim=0) for parts in zip(*map(batch, numbers), strict=True))
    differentiate(lambda: mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label))


@pytest.mark.parametrize("algorithm", [*LOCAL, "sync"])
@pytest.mark.parametrize(("optimizer", "options"), [("sgd", {"learning_rate": 0.1}), ("adam", {"learning_rate": 0.1})])
def test_gradients_clipped_by_their_global_norm_before_the_step_are_those_of_gluon(algorithm, optimizer, options):
    bound, sent = 0.05, []
    nets = [make_net() for _ in range(3)]
    trainers = [
        trainer_of(nets[0], algorithm, optimizer, options),
        *(mx.gluon.Trainer(net.collect_params(), optimizer, dict(options), kvstore=None) for net in nets[1:]),
    ]
    for number in range(4):
        for net, trainer, clips in zip(nets, trainers, (True, True, False), strict=True):
            backward(net, number)
            gradients_of = [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]
            if clips:  # the sum over the batch, as step divides by its size
                norm = mx.gluon.utils.clip_global_norm(gradients_of, bound * BATCH, check_isfinite=False)
                assert norm.asscalar() > bound * BATCH
            if trainer is trainers[0]:
                trainer.log(norm=norm)
            trainer.step(BATCH)
        sent += [np.linalg.norm(gradients(trainers[0]))] if algorithm == "sync" else []
    if algorithm == "sync":  # the scripted servers take no step
        assert sent == [pytest.approx(bound, rel=1e-5)] * 4
    else:
        assert values(nets[0]) == values(nets[1]) != values(nets[2])


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
            take_steps(net, trainer, number)
    assert values(nets[0]) == values(nets[1]) != values(nets[2])


UNSCALED = {"scale": False, "center": False}


def with_layers(*layers: Any) -> Any:
    """Return an initialized network of these layers."""
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(*layers)
    net.initialize()
    return net


def train(net: Any, inputs: Any, steps: int = 60) -> None:
    trainer = trainer_of(net, "local")
    for _ in range(steps):
        differentiate(lambda: (net(inputs) ** 2).sum())
        trainer.step(BATCH)
    mx.nd.waitall()


def shifted(size: int) -> Any:
    return mx.nd.array(np.random.default_rng(0).uniform(2, 6, (BATCH, size)).astype(np.float32))


@pytest.mark.parametrize(
    ("before", "hybrid"),
    [
        ([], {}),
        ([lambda: nn.HybridLambda(lambda ops, x: ops.floor(x))], {"static_alloc": True, "static_shape": True}),
        ([], None),
    ],
    ids=["first", "after floor", "not compiled"],
)
def test_batch_norm_with_nothing_to_train_keeps_its_running_statistics(before, hybrid):
    """MXNet leaves it out of the backward pass on CPUs (apache/mxnet issue 18673)."""
    net = with_layers(*(make() for make in before), nn.BatchNorm(**UNSCALED), nn.Dense(3))
    inputs = shifted(2)
    layer, seen = net[len(before)], (inputs.floor() if before else inputs).asnumpy()
    if hybrid is not None:
        net.hybridize(**hybrid)
    with mx.autograd.record():  # compiles the network before the trainer sees it
        net(inputs).backward()
    train(net, inputs)
    assert np.allclose(layer.running_mean.data().asnumpy(), seen.mean(0), rtol=0.01)
    assert np.allclose(layer.running_var.data().asnumpy(), seen.var(0), rtol=0.05, atol=0.01)
    assert layer.beta.grad_req == "null"
    assert not layer.beta.data().asnumpy().any()
    assert (layer.gamma.data().asnumpy() == 1).all()


def test_batch_norm_behind_a_frozen_embedding_keeps_its_running_statistics():
    """An embedding's input cannot have a gradient."""
    net = with_layers(nn.Embedding(10, 4), nn.Flatten(), nn.BatchNorm(**UNSCALED), nn.Dense(3))
    tokens = mx.nd.array(np.random.default_rng(0).integers(0, 10, (BATCH, 5)))
    net(tokens)
    net[0].weight.grad_req = "null"
    train(net, tokens)
    assert np.allclose(net[2].running_mean.data().asnumpy(), net[:2](tokens).mean(0).asnumpy(), atol=0.001)


def with_frozen_layers() -> tuple[Any, Any]:
    """Return a network whose first two layers are frozen, the second one a batch norm, and its inputs."""
    net = with_layers(nn.Dense(2), nn.BatchNorm(**UNSCALED), nn.Dense(3))
    inputs = shifted(2)
    net(inputs)
    for layer in (net[0], net[1]):
        layer.collect_params().setattr("grad_req", "null")
    return net, inputs


@pytest.mark.parametrize(("pretrained", "unchanged"), [(True, True), (False, False)])
def test_statistics_that_came_with_frozen_layers_stay_as_they_are(pretrained, unchanged):
    net, inputs = with_frozen_layers()
    if pretrained:
        net[1].running_mean.set_data(mx.nd.array([1.0, 2.0]))
    before = net[1].running_mean.data().asnumpy()
    train(net, inputs, 5)
    assert (net[1].running_mean.data().asnumpy() == before).all() == unchanged


def test_whether_frozen_layers_came_with_statistics_is_seen_in_the_common_values():
    """Only rank 0 may have loaded them."""
    net, inputs = with_frozen_layers()
    world = steady_world(flat(net))
    world.prepare = lambda exchange: net[1].running_mean.set_data(mx.nd.array([1.0, 2.0]))
    trainer = sgd_trainer(net, ESync(local_iterations=100), world=world)
    trainer.start()
    differentiate(lambda: net(inputs).sum())
    trainer.step(BATCH)
    assert net[1].running_mean.data().asnumpy().tolist() == [1.0, 2.0]


def test_a_frozen_layer_elsewhere_does_not_stop_the_running_statistics():
    net = with_layers(nn.BatchNorm(**UNSCALED), nn.Dense(4), nn.BatchNorm(), nn.Dense(3))
    inputs = shifted(2)
    net(inputs)
    net[2].gamma.grad_req = "null"
    train(net, inputs, 5)
    assert net[0].running_mean.data().asnumpy().all()


def test_batch_norm_that_forward_does_not_use_is_no_obstacle(caplog):
    net = with_layers(nn.Dense(4), nn.Dense(3))
    net.unused = nn.BatchNorm(in_channels=4, **UNSCALED)
    inputs = shifted(2)
    net.initialize()
    net(inputs)
    weight = net[0].weight.data().asnumpy()
    trainer = trainer_of(net, "local")
    differentiate(lambda: net(inputs).sum())
    trainer.step(BATCH)
    assert not np.array_equal(net[0].weight.data().asnumpy(), weight)
    assert not caplog.records


def test_parameter_that_is_listed_twice_counts_once():
    net = make_net()
    parameters = list(net.collect_params().values())
    trainer = esync.Trainer([*parameters, *parameters], "sgd", {"learning_rate": 0.1}, algorithm="local", world=World())
    assert trainer.parameters == parameters
    backward(net, 0)
    before = flat(net)
    trainer.step(BATCH)  # with repetitions Gluon finds the gradient of the second mention stale
    assert flat(net) != before
