import re

import pytest

from esync.models.names import NETWORKS, NetworkName, has_batch_norm, is_network, parse_network
from esync.models.networks import build
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
        ("alexnetx0.5", "alexnet has one width"),
        ("lenet-groupnorm", "network lenet has no batch norm"),
    ],
)
def test_name_that_cannot_be_is_refused(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_network(text)
    assert not is_network(text)


@pytest.mark.parametrize("name", NETWORKS)
def test_name_without_more_is_that_of_a_network(name):
    assert is_network(name)


def test_width_multiplies_the_channels():
    def channels(name: str) -> list[int]:
        net = build(name, 10, mx.cpu(), seed=0)
        return [each.shape[0] for each in net.collect_params(".*conv.*weight").values()]

    for base in ("resnet18-v1", "mobilenet-v1"):
        assert channels(f"{base}x0.25") == [each // 4 for each in channels(base)]


def test_networks_with_batch_norm_are_known():
    for name in NETWORKS:
        if name not in ("resnet50-v1", "resnet50-v2", "cifar-resnet56-v1", "cifar-resnet110-v1"):  # slow to build
            statistics = [
                p for p in build(name, 10, mx.cpu(), seed=0).collect_params().values() if p.grad_req == "null"
            ]
            assert has_batch_norm(name) == bool(statistics)
    assert not has_batch_norm("resnet18-v1-groupnorm")
    assert has_batch_norm("nets.py:build")  # it may have
