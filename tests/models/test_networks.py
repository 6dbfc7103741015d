import numpy as np
import pytest

from esync.models.names import NETWORKS, has_batch_norm, parse_network
from esync.models.networks import MODELS, build
from esync.runtime.mxnet_import import mx

#: Built of the same parts as their smaller relatives, and slow to build.
DEEP = ("cifar-resnet56-v1", "cifar-resnet110-v1")
#: Networks that are as ready when they are narrow; `test_names` builds them in full width.
WIDE = ("alexnet", "inception-v3", "resnet50-v1", "resnet50-v2")


def weights(net) -> list[np.ndarray]:
    return [parameter.data().asnumpy() for _, parameter in sorted(net.collect_params().items())]


def test_models_contain_every_network_of_the_command_line():
    assert set(MODELS) == set(NETWORKS)


def test_models_have_the_expected_input_sizes():
    sizes = {name: model.size for name, model in MODELS.items()}
    assert sizes.pop("alexnet") == 224
    assert sizes.pop("inception-v3") == 299
    assert {sizes.pop(f"cifar-resnet{layers}-v1") for layers in (20, 32, 56, 110)} == {32}
    assert set(sizes.values()) == {28}


@pytest.mark.parametrize(
    ("name", "classes"),
    [*((f"{name}x0.0625" if name in WIDE else name, 10) for name in NETWORKS if name not in DEEP), ("lenet", 7)],
)
def test_build_returns_a_network_that_is_ready_to_train(name, classes):
    net = build(name, classes, mx.cpu(), seed=0)
    size = MODELS[parse_network(name).base].size
    with mx.autograd.record():
        output = net(mx.nd.ones((2, 1, size, size)))
    output.backward()
    assert output.shape == (2, classes)
    assert np.isfinite(output.asnumpy()).all()
    assert all(parameter.data().size > 0 for parameter in net.collect_params().values())
    assert has_batch_norm(name) == any(parameter.grad_req == "null" for parameter in net.collect_params().values())


@pytest.mark.parametrize("name", ["lenet", "resnet18-v1x0.25"])
def test_build_with_seed_determines_the_weights(name):
    """All workers begin alike, with parameters in one order, so a flat vector has one meaning."""
    mx.random.seed(99)
    one = weights(build(name, 10, mx.cpu(), seed=1))
    again = weights(build(name, 10, mx.cpu(), seed=1))
    other = weights(build(name, 10, mx.cpu(), seed=2))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_build_hybridized_or_not_computes_the_same():
    mx.random.seed(5)
    images = mx.nd.random.uniform(shape=(4, 1, 28, 28))
    one = build("lenet", 10, mx.cpu(), seed=1, hybridize=True)(images).asnumpy()
    other = build("lenet", 10, mx.cpu(), seed=1, hybridize=False)(images).asnumpy()
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_build_cifar_resnet_accepts_colour_images():
    net = build("cifar-resnet20-v1", 100, mx.cpu(), seed=0, shape=(3, 32, 32))
    assert net(mx.nd.ones((2, 3, 32, 32))).shape == (2, 100)
    convolutions = [p for p in net.collect_params(".*weight").values() if len(p.shape) == 4 and p.shape[2] == 3]
    assert len(convolutions) == 20 - 1  # and the last layer, which is dense
