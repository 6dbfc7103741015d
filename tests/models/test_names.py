import re
from functools import cache

import numpy as np
import pytest

from esync.models.names import NetworkName, has_batch_norm, is_network, parse_network
from esync.models.networks import MODELS, build
from esync.runtime.mxnet_import import mx


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("resnet18-v1", NetworkName("resnet18-v1")),
        ("resnet18-v1x0.25", NetworkName("resnet18-v1", 0.25)),
        ("mobilenet-v2x1.5-groupnorm", NetworkName("mobilenet-v2", 1.5, "group")),
        ("inception-v3-groupnorm", NetworkName("inception-v3", 1, "group")),
    ],
)
def test_name_of_a_network_is_taken_apart_and_put_together(text, name):
    assert parse_network(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resnet18", "unknown network 'resnet18'"),
        ("resnet18-v1x", "unknown network 'resnet18-v1x'"),
        ("resnet18-v1-groupnormx0.25", "in the form NAME[xWIDTH][-groupnorm]"),
        ("resnet18-v1x0.250", "network 'resnet18-v1x0.250' is written 'resnet18-v1x0.25'"),
        ("resnet18-v1x1", "network 'resnet18-v1x1' is written 'resnet18-v1'"),
        ("resnet18-v1x0", "a width should be from 0.0625 to 4"),
        ("resnet18-v1x5", "a width should be from 0.0625 to 4"),
        ("lenetx0.5", "lenet has one width"),
        ("alexnetx0.5-groupnorm", "network alexnet has no batch norm"),
        ("lenet-groupnorm", "network lenet has no batch norm"),
    ],
)
def test_name_that_cannot_be_is_refused(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_network(text)
    assert not is_network(text)


@cache
def shapes_of(name: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters of a network for colour images."""
    return shapes(build(name, 10, mx.cpu(), seed=0, shape=(3, 28, 28)))


def shapes(net: mx.gluon.Block) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's parameters by name, without the network's own prefix."""
    return {name.removeprefix(net.prefix): parameter.shape for name, parameter in net.collect_params().items()}


@pytest.mark.parametrize(
    ("base", "width"), [("resnet18-v1", 0.25), ("mobilenet-v1", 0.0625), ("alexnet", 0.0625), ("inception-v3", 0.0625)]
)
def test_width_multiplies_the_channels_of_all_layers_but_the_last(base, width):
    def outputs(name: str) -> list[int]:
        return [shape[0] for layer, shape in shapes_of(name).items() if layer.endswith("weight")]

    full = outputs(base)
    assert outputs(f"{base}x{width}") == [*(max(1, round(channels * width)) for channels in full[:-1]), 10]


@pytest.mark.parametrize(("name", "published"), [("alexnet", "alexnet"), ("inception-v3", "inceptionv3")])
def test_network_without_width_has_the_parameters_of_the_published_one(name, published):
    from gluoncv.model_zoo import get_model  # needs what `mxnet_import` gives NumPy

    reference = get_model(published, classes=10, pretrained=False)
    reference.initialize()
    reference(mx.nd.zeros((1, 3, MODELS[name].size, MODELS[name].size)))
    assert shapes_of(name) == shapes(reference)


@pytest.mark.parametrize("name", ["alexnetx0.0625", "inception-v3x0.0625-groupnorm"])
def test_gradients_of_a_narrow_network_reach_every_trained_parameter(name):
    net = build(name, 10, mx.cpu(), seed=0)
    size = MODELS[parse_network(name).base].size
    with mx.autograd.record():
        scores = net(mx.nd.random.normal(shape=(2, 1, size, size)))
        loss = scores.square().sum()
    loss.backward()
    assert scores.shape == (2, 10)
    trained = [parameter for parameter in net.collect_params().values() if parameter.grad_req != "null"]
    assert all(np.abs(parameter.grad().asnumpy()).max() > 0 for parameter in trained)


def test_batch_norm_may_be_in_a_network_of_the_users():
    assert has_batch_norm("nets.py:build")
    assert not has_batch_norm("resnet18-v1-groupnorm")
