"""A small network with batch norm, its batches, and a trainer of it that works alone."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import esync
from esync.runtime.mxnet_import import mx

nn = mx.gluon.nn
BATCH = 8
OPTIMIZERS = [
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9}),
    ("sgd", {"learning_rate": 0.1, "wd": 0.01, "rescale_grad": 0.5, "clip_gradient": 0.2}),
    ("adam", {"learning_rate": 0.01}),
    ("nadam", {"learning_rate": 0.01}),
]


def make_net(prefix: str = "net_"):
    """The same weights at every call; with batch norm, so that there are statistics too."""
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(6, in_units=5), nn.BatchNorm(in_channels=6), nn.Dense(3, in_units=6))
    mx.random.seed(3)
    net.initialize(mx.init.Xavier())
    return net


def single_weight(dtype: str = "float32", size: int = 2, init: str = "ones", **options: Any) -> Any:
    """A parameter without a network."""
    weight = mx.gluon.Parameter("weight", shape=(size,), dtype=dtype, init=init, **options)
    weight.initialize()
    return weight


def batch(number: int):
    rng = np.random.default_rng(number)
    return mx.nd.array(rng.standard_normal((BATCH, 5))), mx.nd.array(rng.integers(0, 3, BATCH))


def differentiate(loss_of: Callable[[], Any]) -> None:
    """Leave the gradients of a loss in the parameters."""
    with mx.autograd.record():
        loss = loss_of()
    loss.backward()


def backward(net, number: int) -> None:
    data, label = batch(number)
    differentiate(lambda: mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label))


def scaled(trainer) -> None:
    """Give a trainer a loss scaler of its own, as programs do after amp.init."""
    from mxnet.contrib.amp import amp

    with mock.patch.multiple(amp, _amp_initialized=True, _amp_loss_scale_initialized=True):
        amp.init_trainer(trainer)


def amp_backward(net, trainer, number: int, factor: float = 1.0) -> None:
    """As `backward` with automatic mixed precision; a large factor makes the gradients overflow."""
    from mxnet.contrib import amp

    data, label = batch(number)
    with mx.autograd.record():
        loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label) * factor
        with amp.scale_loss(loss, trainer) as larger:
            larger.backward()


def values(net) -> list[bytes]:
    """All weights and statistics, bit for bit."""
    return [parameter.data().asnumpy().tobytes() for parameter in net.collect_params().values()]


def local_trainer(net, optimizer="sgd", options=None, **arguments) -> esync.Trainer:
    options = {"learning_rate": 0.1} if options is None else options
    return esync.Trainer(net.collect_params(), optimizer, options, algorithm="local", **arguments)


def sgd_trainer(net, algorithm, options=None, **arguments) -> esync.Trainer:
    options = {"learning_rate": 0.1} if options is None else options
    return esync.Trainer(net.collect_params(), "sgd", options, algorithm=algorithm, **arguments)


def take_steps(net, trainer, *numbers: int) -> None:
    """Train on each of these batches."""
    for number in numbers:
        backward(net, number)
        trainer.step(BATCH)


def flat(net) -> list[float]:
    chosen = sorted((name, p) for name, p in net.collect_params().items() if p.grad_req != "null")
    return np.concatenate([p.data().asnumpy().reshape(-1) for _, p in chosen]).tolist()
