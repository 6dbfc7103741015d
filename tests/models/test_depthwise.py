"""Padding before depthwise convolutions on small feature maps, with the same result."""

import numpy as np
import pytest

from esync.models import depthwise, networks
from esync.runtime.mxnet_import import mx

nn = mx.gluon.nn


def network(*layers, shape):
    """Initialized with the seed 0 and hybridized, its shapes known."""
    mx.random.seed(0)
    net = nn.HybridSequential(prefix="tested_")
    with net.name_scope():
        net.add(*layers)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.zeros(shape))
    return net


def outputs_of(net):
    """The names of everything that is computed on the way."""
    return net(mx.sym.var("data")).get_internals().list_outputs()


def gradients(net, images):
    """The output and every gradient by its name."""
    with mx.autograd.record():
        outputs = net(images)
        loss = (outputs * outputs).sum()
    loss.backward()
    parameter_gradients = {name: parameter.grad().asnumpy() for name, parameter in net.collect_params().items()}
    return {"output": outputs.asnumpy(), **parameter_gradients}


@pytest.mark.parametrize(
    ("kernel", "pad", "stride", "height", "width", "bias"),
    [(3, 1, 1, 2, 2, False), (3, 1, 2, 2, 2, True), (5, 2, 1, 1, 3, True)],
)
def test_pad_beforehand_with_small_feature_map_gives_the_same_result(kernel, pad, stride, height, width, bias):
    shape = (3, 8, height, width)

    def build():
        return network(nn.Conv2D(8, kernel, stride, pad, groups=8, use_bias=bias, prefix="conv_"), shape=shape)

    plain, padded = build(), build()
    assert depthwise.pad_beforehand(padded, shape) == 1
    padded.hybridize()
    assert [any("pad" in output for output in outputs_of(net)) for net in (plain, padded)] == [False, True]
    images = mx.nd.array(np.random.default_rng(0).standard_normal(shape))
    expected, actual = gradients(plain, images), gradients(padded, images)
    assert expected.keys() == actual.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2D(8, 3, padding=1, groups=8), (2, 8, 3, 3)),  # the map is as large as the kernel
        (nn.Conv2D(8, 3, padding=1), (2, 8, 2, 2)),  # not depthwise
        (nn.Conv2D(8, 3, padding=1, groups=4), (2, 8, 2, 2)),  # nor this
        (nn.Conv2D(8, 2, groups=8), (2, 8, 2, 2)),  # nothing to pad
        (nn.Conv2D(1, 3, padding=1), (2, 1, 2, 2)),  # one channel
    ],
)
def test_pad_beforehand_leaves_other_convolutions_unchanged(layer, shape):
    assert depthwise.pad_beforehand(network(layer, shape=shape), shape) == 0


def test_mobilenet_exchanges_parameters_with_gluoncv(tmp_path):
    from gluoncv.model_zoo import get_model

    file = str(tmp_path / "some.params")
    ours = networks.build("mobilenet-v1", 10, mx.cpu(), seed=1)
    ours.save_parameters(file)
    theirs = get_model("mobilenet1.0", classes=10)
    theirs.load_parameters(file)
    images = mx.nd.array(np.random.default_rng(0).random((4, 1, 28, 28)))
    np.testing.assert_allclose(ours(images).asnumpy(), theirs(images).asnumpy(), rtol=1e-4, atol=1e-5)
    assert sum("pad" in output for output in outputs_of(ours)) == 7
