"""SGD in host memory, against MXNet's bit for bit."""

import numpy as np
import pytest

from esync.gluon.optimizers import BLOCK, SGD
from esync.runtime.mxnet_import import mx

from ..support.small_net import sgd_trainer

OPTIONS = [{}, {"momentum": 0.9}, {"wd": 0.01}, {"momentum": 0.9, "wd": 0.01}, {"clip_gradient": 0.1}]


@pytest.mark.parametrize("several", [False, True], ids=["one by one", "aggregated"])
@pytest.mark.parametrize(("rate", "rescale"), [(0.0005, 1.0), (0.05, 1 / 64), (0.123, 0.37)])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_sgd_equals_mxnet_bit_for_bit(rate, rescale, options, several):
    random = np.random.default_rng(0)
    values, *slopes = (random.standard_normal(2 * BLOCK + 7, np.float32) for _ in range(4))
    weights = []
    for optimizer in (mx.optimizer.SGD, SGD):
        update = mx.optimizer.get_updater(optimizer(learning_rate=rate, rescale_grad=rescale, **options))
        weight = mx.nd.array(values)
        for slope in slopes:
            if several:
                update([0], [mx.nd.array(slope)], [weight])
            else:
                update(0, mx.nd.array(slope), weight)
        weights.append(weight.asnumpy())
    assert not np.array_equal(weights[0], values)
    assert np.array_equal(*weights)


def test_sgd_of_float16_is_left_to_mxnet():
    weight = mx.nd.array([1, 2, 3], dtype="float16")
    mx.optimizer.get_updater(SGD(learning_rate=0.5))(0, mx.nd.ones(3, dtype="float16"), weight)
    assert weight.asnumpy().tolist() == [0.5, 1.5, 2.5]


def test_momentum_that_is_set_after_the_first_step_is_refused():
    optimizer = SGD(learning_rate=0.5)
    update, weight = mx.optimizer.get_updater(optimizer), mx.nd.ones(3)
    update(0, mx.nd.ones(3), weight)
    optimizer.momentum = 0.9
    with pytest.raises(ValueError, match=r"momentum was set to 0\.9 after its first step"):
        update(0, mx.nd.ones(3), weight)
    assert weight.asnumpy().tolist() == [0.5] * 3


def test_sgd_waits_for_its_gradient():
    """The engine is asynchronous; a step taken too early would use an older gradient."""
    weight, other = mx.nd.zeros((256, 256)), mx.nd.random.uniform(shape=(256, 256))
    product = other
    for _ in range(200):
        product = mx.nd.dot(product, other) / 128
    mx.optimizer.get_updater(SGD(learning_rate=1.0))(0, product, weight)
    assert np.array_equal(weight.asnumpy(), -product.asnumpy())


def test_sgd_waits_for_its_new_momentum():
    """The engine fills it with zeros asynchronously; zeros after the step would undo the step."""
    grad, weight, other = mx.nd.ones(1000), mx.nd.zeros(1000), mx.nd.random.uniform(shape=(2000, 2000))
    mx.nd.waitall()
    mx.nd.dot(other, other)  # keeps the engine busy
    update = mx.optimizer.get_updater(SGD(learning_rate=0.5, momentum=0.5))
    update(0, grad, weight)
    mx.nd.waitall()
    update(0, grad, weight)
    assert weight.asnumpy().tolist() == [-1.25] * 1000


@pytest.mark.parametrize(("algorithm", "mine"), [("local", True), ("esync", True), ("sync", False)])
def test_trainer_uses_host_sgd_where_the_optimizer_runs_locally(algorithm, mine):
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    assert isinstance(sgd_trainer(net, algorithm)._optimizer, SGD) == mine
