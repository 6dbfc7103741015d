import numpy as np
import pytest

from esync.data import as_floats
from esync.models.networks import build
from esync.runtime.errors import ExpectedError
from esync.runtime.mxnet_import import mx
from esync.training.batch_norm import reestimate_statistics

from ..support.small_net import nn

IMAGES = np.random.default_rng(0).integers(0, 256, (150, 1, 28, 28), np.uint8)  # two whole batches and a part


def small(momentum: float = 0.9, kind=nn.BatchNorm):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3), kind(momentum=momentum), nn.Dense(10))
    net.initialize()
    net.hybridize(static_alloc=True, static_shape=True)
    net(mx.nd.zeros((2, 1, 28, 28)))
    return net


def reestimate(net) -> None:
    reestimate_statistics(net, IMAGES, None, mx.cpu())


@pytest.mark.parametrize("kind", [nn.BatchNorm, nn.BatchNormReLU])
@pytest.mark.parametrize("momentum", [0.9, 0.99])
def test_estimated_statistics_are_the_moments_of_all_images(momentum, kind):
    net = small(momentum, kind)
    inputs = net[0](mx.nd.array(as_floats(IMAGES))).asnumpy()
    net[1].running_mean.set_data(mx.nd.full(8, 5.0))
    reestimate(net)
    np.testing.assert_allclose(net[1].running_mean.data().asnumpy(), inputs.mean((0, 2, 3)), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(net[1].running_var.data().asnumpy(), inputs.var((0, 2, 3)), rtol=1e-3, atol=1e-4)


class Twice(mx.gluon.HybridBlock):
    """Uses one batch norm layer for two inputs of different sizes and moments."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense = nn.BatchNorm(), nn.Dense(10)

    def hybrid_forward(self, F, x):  # noqa: N803 - Gluon's name
        small = F.Pooling(3 * x + 2, kernel=(2, 2), stride=(2, 2), pool_type="max")
        return self.dense(F.concat(F.flatten(self.norm(x)), F.flatten(self.norm(small)), dim=1))


@pytest.mark.parametrize("compiled", [True, False])
def test_estimated_statistics_of_a_layer_used_twice_are_the_moments_of_both_inputs(compiled):
    net = Twice()
    net.initialize()
    net.hybridize(compiled)
    net(mx.nd.zeros((2, 1, 28, 28)))
    reestimate(net)
    inputs = mx.nd.array(as_floats(IMAGES))
    small = mx.nd.Pooling(3 * inputs + 2, kernel=(2, 2), stride=(2, 2), pool_type="max")
    values = np.concatenate([inputs.asnumpy().ravel(), small.asnumpy().ravel()]).astype(np.float64)
    assert net.norm.running_mean.data().asscalar() == pytest.approx(values.mean(), rel=1e-4)
    assert net.norm.running_var.data().asscalar() == pytest.approx(values.var(), rel=1e-4)


class Unused(Twice):
    """Has a batch norm layer that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.BatchNorm(in_channels=2)


def test_batch_norm_layer_that_is_not_used_keeps_its_statistics():
    net = Unused()
    net.initialize()
    net(mx.nd.zeros((2, 1, 28, 28)))
    net.unused.running_mean.set_data(mx.nd.array([1, 2]))
    reestimate(net)
    assert list(net.unused.running_mean.data().asnumpy()) == [1, 2]


def test_estimation_leaves_gradients_hooks_and_compiled_graphs_as_they_are():
    net = small()
    with mx.autograd.record():
        net(mx.nd.ones((2, 1, 28, 28))).backward()
    graph, gradient = net._cached_op, net[0].weight.grad().asnumpy()
    reestimate(net)
    assert net._active
    assert net._cached_op is graph
    assert np.array_equal(net[0].weight.grad().asnumpy(), gradient)
    mean = net[1].running_mean.data().asnumpy()
    net(mx.nd.ones((2, 1, 28, 28)))
    assert not net[1]._forward_pre_hooks
    assert np.array_equal(net[1].running_mean.data().asnumpy(), mean)


def test_estimated_statistics_leave_the_weights_as_they_are():
    net = build("resnet18-v1x0.25", 10, mx.cpu(), seed=0)
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    before = [p.data().asnumpy() for p in trained]
    reestimate_statistics(net, IMAGES, 28, mx.cpu())
    assert all(np.array_equal(p.data().asnumpy(), old) for p, old in zip(trained, before, strict=True))
    with mx.autograd.train_mode():
        trained_mode = net(mx.nd.array(as_floats(IMAGES))).asnumpy()
    evaluated = net(mx.nd.array(as_floats(IMAGES))).asnumpy()
    assert np.corrcoef(trained_mode.ravel(), evaluated.ravel())[0, 1] > 0.9


def test_network_without_batch_norm_is_refused():
    with pytest.raises(ExpectedError, match="no batch norm"):
        reestimate_statistics(build("lenet", 10, mx.cpu(), seed=0), IMAGES, 28, mx.cpu())
