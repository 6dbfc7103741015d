import numpy as np
import pytest

from esync.models.group_norm import GroupNorm
from esync.models.networks import build
from esync.runtime.mxnet_import import mx


def reference(x: np.ndarray, groups: int, epsilon: float) -> np.ndarray:
    rows = x.reshape(len(x), groups, -1)
    mean, variance = rows.mean(2, keepdims=True), rows.var(2, keepdims=True)
    return ((rows - mean) / np.sqrt(variance + epsilon)).reshape(x.shape)


def layer(hybridize: bool, channels: int, **options) -> GroupNorm:
    net = GroupNorm(**options)
    net.initialize()
    net(mx.nd.zeros((1, channels, 2, 2)))
    net.hybridize(hybridize, static_alloc=True, static_shape=True)
    return net


@pytest.mark.parametrize(
    ("hybridize", "shape", "groups"),
    [(False, (3, 8, 5, 4), 4), (True, (2, 32, 1, 1), 4), (True, (2, 1, 6, 6), 1), (True, (2, 6, 3, 3), 2)],
)
def test_group_norm_normalizes_the_groups_of_each_sample(hybridize, shape, groups):
    random = np.random.default_rng(0)
    x = (random.normal(size=shape) * 3 + 7).astype(np.float32)
    gamma, beta = (random.normal(size=shape[1]).astype(np.float32) for _ in range(2))
    net = layer(hybridize, shape[1])
    net.gamma.set_data(gamma)
    net.beta.set_data(beta)
    expected = gamma[:, None, None] * reference(x, groups, 1e-5) + beta[:, None, None]
    np.testing.assert_allclose(net(mx.nd.array(x)).asnumpy(), expected, rtol=1e-4, atol=1e-4)


def test_group_norm_of_a_compiled_network_needs_its_channels():
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(8, 3), GroupNorm())
    net.initialize()
    net.hybridize()
    with pytest.raises(ValueError, match=r"groupnorm\d+: .* give in_channels, or let one batch"):
        net(mx.nd.zeros((1, 3, 8, 8)))


def test_group_norm_has_the_gradient_of_its_definition():
    random = np.random.default_rng(1)
    values, upstream = (random.normal(size=(2, 8, 3, 3)).astype(np.float32) for _ in range(2))
    net, x, step = layer(True, 8), mx.nd.array(values), 1e-3
    x.attach_grad()
    with mx.autograd.record():
        out = net(x)
    out.backward(mx.nd.array(upstream))
    for place in [(0, 0, 0, 0), (1, 3, 2, 1), (1, 7, 0, 2)]:
        plus, minus = values.astype(float), values.astype(float)
        plus[place] += step
        minus[place] -= step
        change = (reference(plus, 4, 1e-5) - reference(minus, 4, 1e-5)) / (2 * step)
        assert x.grad.asnumpy()[place] == pytest.approx((change * upstream).sum(), abs=1e-3)
    normalized = reference(values.astype(float), 4, 1e-5)
    scale = (normalized * upstream).sum((0, 2, 3))
    np.testing.assert_allclose(net.gamma.grad().asnumpy(), scale, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(net.beta.grad().asnumpy(), upstream.sum((0, 2, 3)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("hybridize", [False, True])
def test_group_norm_of_float16_sums_in_float32(hybridize):
    net = layer(hybridize, 4)
    net.cast("float16")
    x = np.random.default_rng(2).normal(3, 2, (1, 4, 300, 300)).astype(np.float16)  # more values than float16 counts
    inputs = mx.nd.array(x, dtype="float16")
    inputs.attach_grad()
    with mx.autograd.record():
        out = net(inputs)
    out.backward()
    assert out.dtype == inputs.grad.dtype == np.float16
    np.testing.assert_allclose(out.asnumpy(), reference(x.astype(float), 4, 1e-5), rtol=1e-2, atol=1e-2)


def test_group_norm_without_scale_and_center_trains_neither():
    net = layer(False, 4, scale=False, center=False)
    assert [parameter.grad_req for parameter in (net.gamma, net.beta)] == ["null", "null"]


@pytest.mark.parametrize("name", ["resnet18-v1x0.25-groupnorm", "mobilenet-v1x0.25-groupnorm"])
def test_network_with_group_norm_has_no_statistics_and_trains(name):
    net = build(name, 10, mx.cpu(), seed=0)
    x = mx.nd.random.uniform(shape=(2, 1, 28, 28))
    with mx.autograd.record():
        out = net(x)
    out.backward()
    assert all(parameter.grad_req == "write" for parameter in net.collect_params().values())
    # Training and evaluation differ by no more than the kernels that MXNet chooses for them.
    np.testing.assert_allclose(net(x).asnumpy(), out.asnumpy(), rtol=1e-3, atol=1e-4)
    assert all(np.isfinite(parameter.grad().asnumpy()).all() for parameter in net.collect_params().values())
