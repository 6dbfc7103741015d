"""Networks that functions of a user's make."""

from pathlib import Path

import numpy as np
import pytest

from esync.models import export
from esync.models.networks import build
from esync.runtime.mxnet_import import mx
from esync.runtime.user_code import UserCodeError

FILE = Path(__file__).parents[1] / "support" / "user_networks.py"


def weights(net) -> list[np.ndarray]:
    return [parameter.data().asnumpy() for _, parameter in sorted(net.collect_params().items())]


def write(folder: Path, *lines: str) -> str:
    (folder / "nets.py").write_text(
        "\n".join(["from mxnet import nd, init, gluon", "from mxnet.gluon import nn", *lines])
    )
    return f"{folder}/nets.py:build"


@pytest.mark.parametrize(
    ("name", "classes", "shape"),
    [("small", 3, (3, 12, 17)), ("dense", 10, (13,)), ("Plain", 4, (1, 8, 8))],
)
def test_build_of_own_network_makes_it_ready_to_train(name, classes, shape):
    nets = [build(f"{FILE}:{name}", classes, mx.cpu(), seed, shape=shape) for seed in (1, 1, 2)]
    one, same, other = map(weights, nets)
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    names = [sorted(net.collect_params()) for net in nets]
    assert names[0] == names[1]  # in whatever process, after whatever else: the order of the values
    with mx.autograd.record():
        output = nets[0](mx.nd.ones((2, *shape)))
    output.backward()
    assert output.shape == (2, classes)


def test_build_keeps_what_the_function_has_initialized(tmp_path):
    text = write(
        tmp_path,
        "def build(classes):",
        "    net = nn.HybridSequential()",
        "    with net.name_scope():",
        "        net.add(nn.Dense(3, in_units=4), nn.Dense(2), nn.Dense(classes, weight_initializer=init.One()))",
        "    net[0].initialize(init.Constant(0.5))",
        "    net[1].initialize(init.Constant(0.25))",  # waits for the shape
        "    return net",
    )
    net = build(text, 3, mx.cpu(), 0, shape=(4,))
    means = [float(layer.weight.data().mean().asscalar()) for layer in (net[0], net[1], net[2])]
    assert means == [0.5, 0.25, 1.0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("    return None", "has returned nothing, but should return a network: a Gluon block"),
        ("    raise ValueError('boom')", "has failed: "),
        (
            "    return nn.Dense(4)",
            "output for a sample is of the shape (4,), but the data set has 3 classes: it should",
        ),
        ("    return nn.Conv2D(3, 1)", "output for a sample is of the shape (3, 6, 6), but the data set has 3 classes"),
        ("    return nn.Conv2D(3, 9)", "makes a network that cannot take samples of the shape (1, 6, 6): "),
        ("    return nn.Lambda(lambda x: 5)", "is of the shape an object of class int"),
    ],
)
def test_build_of_what_is_no_network_for_the_data_is_refused(tmp_path, lines, message):
    text = write(tmp_path, "def build():", lines, "")
    with pytest.raises(UserCodeError) as caught:
        build(text, 3, mx.cpu(), 0, shape=(1, 6, 6))
    assert str(caught.value).startswith(text)
    assert message in str(caught.value)


def test_build_of_lenet_for_other_samples_than_images_is_refused():
    with pytest.raises(UserCodeError, match=r"network lenet takes images, and the samples have the shape \(13,\)"):
        build("lenet", 3, mx.cpu(), 0, shape=(13,))


@pytest.mark.parametrize(
    ("name", "hybridize", "files", "message"),
    [
        ("small", False, {"model.params", "model-symbol.json", "model-0000.params", "model.onnx"}, ""),
        ("Plain", True, {"model.params"}, "as model.params only: the network is a plain Block"),
    ],
)
def test_export_of_own_network_writes_files_that_load_again(tmp_path, name, hybridize, files, message):
    pytest.importorskip("onnx")
    net = build(f"{FILE}:{name}", 3, mx.cpu(), 0, hybridize, (3, 9, 9))
    messages: list[str] = []
    export.save(net, tmp_path, (1, 3, 9, 9), messages.append)
    assert {path.name for path in tmp_path.iterdir()} == files
    assert message in "".join(messages)
    again = build(f"{FILE}:{name}", 3, mx.cpu(), 1, hybridize, (3, 9, 9))
    again.load_parameters(str(tmp_path / "model.params"))
    assert all(np.array_equal(a, b) for a, b in zip(weights(net), weights(again), strict=True))


def test_network_that_cannot_be_compiled_is_built_and_kept(tmp_path):
    text = write(
        tmp_path,
        "class build(gluon.HybridBlock):",
        "    def __init__(self, classes):",
        "        super().__init__()",
        "        self.dense = nn.Dense(classes)",
        "    def hybrid_forward(self, F, x):",
        "        return self.dense(x.reshape((x.shape[0], -1)))",
    )
    with pytest.raises(UserCodeError, match="where only a compiled network fails, --no-hybridize helps"):
        build(text, 3, mx.cpu(), 0, shape=(1, 6, 6))
    net = build(text, 3, mx.cpu(), 0, hybridize=False, shape=(1, 6, 6))
    messages: list[str] = []
    export.save(net, tmp_path / "model", (1, 1, 6, 6), messages.append)
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["model.params"]
    assert "the network cannot be compiled" in "".join(messages)
