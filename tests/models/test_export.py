import sys
from pathlib import Path

import numpy as np
import pytest

from esync.models import export
from esync.models.networks import build
from esync.runtime.mxnet_import import mx

from ..support.disks import fill

SHAPE = (1, 1, 28, 28)


@pytest.fixture(scope="module")
def images():
    return mx.nd.array(np.random.default_rng(0).random((4, 1, 28, 28), np.float32))


@pytest.fixture
def trained():
    """LeNet with the weights of another seed than that of the initial ones."""
    return build("lenet", 10, mx.cpu(), seed=5)


def save(net, folder: Path) -> list[str]:
    messages: list[str] = []
    export.save(net, folder, SHAPE, messages.append)
    return messages


def test_save_writes_parameters_symbol_and_onnx(trained, images, tmp_path):
    pytest.importorskip("onnx")
    assert save(trained, tmp_path / "model") == []
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {"model.params", "model-symbol.json", "model-0000.params", "model.onnx"}
    expected = trained(images).asnumpy()
    block = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "model/model-symbol.json"), ["data"], str(tmp_path / "model/model-0000.params")
    )
    np.testing.assert_array_equal(block(images).asnumpy(), expected)
    same = build("lenet", 10, mx.cpu(), seed=6)
    assert not np.array_equal(same(images).asnumpy(), expected)
    same.load_parameters(str(tmp_path / "model/model.params"))
    np.testing.assert_array_equal(same(images).asnumpy(), expected)


# MobileNet pads by an operator of its own; group norm has operators that the exporter may not know.
@pytest.mark.parametrize("network", ["lenet", "mobilenet-v1x0.25", "mobilenet-v1x0.0625-groupnorm"])
def test_save_onnx_model_computes_the_same_scores(network, images, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    trained = build(network, 10, mx.cpu(), seed=5)
    assert save(trained, tmp_path) == []
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    (name,) = (model_input.name for model_input in session.get_inputs())
    for image in images:
        (scores,) = session.run(None, {name: image.expand_dims(0).asnumpy()})
        # Group norm of few values that are nearly the same makes rounding errors larger.
        np.testing.assert_allclose(scores, trained(image.expand_dims(0)).asnumpy(), atol=1e-4)


class Sum(mx.gluon.HybridBlock):
    """A network with two inputs."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = mx.gluon.nn.Dense(1, in_units=8)

    def hybrid_forward(self, F, x, y):  # noqa: N803
        return self.dense(x + y)


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        ("two", (1, 8), "the network has 2 inputs (data0, data1), and input_shape is that of one"),
        ("float64", (1, 8), ""),
        ("np", (1, 8), ""),
        ("wrong", (1, 7), "MXNet's exporter cannot translate it"),
    ],
)
def test_save_of_unusual_network_writes_what_it_can(kind, shape, message, tmp_path):
    pytest.importorskip("onnx")
    if kind == "np":
        mx.npx.set_np()
    try:
        net = Sum() if kind == "two" else mx.gluon.nn.Dense(1, in_units=8)
        if kind == "float64":
            net.cast(kind)
        net.initialize()
        net.hybridize()
        ones = (mx.np if kind == "np" else mx.nd).ones((4, 8), dtype="float64" if kind == "float64" else "float32")
        inputs = [ones] * (1 + (kind == "two"))
        expected = net(*inputs).asnumpy()
        messages: list[str] = []
        export.save(net, tmp_path, shape, messages.append)
        assert message in "".join(messages)
        assert (tmp_path / "model.onnx").exists() == (not message)
        files = str(tmp_path / "model-symbol.json"), str(tmp_path / "model-0000.params")
        names = ["data0", "data1"] if kind == "two" else ["data"]
        again = mx.gluon.SymbolBlock.imports(files[0], names, files[1])
        np.testing.assert_allclose(again(*inputs).asnumpy(), expected)
    finally:
        mx.npx.reset_np()


def test_save_without_onnx_package_says_so(trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    (tmp_path / "model.onnx").write_text("of an earlier run")
    (message,) = save(trained, tmp_path)
    assert message.startswith(
        "the final model was not exported to ONNX: the package onnx is not installed (pip install"
    )
    assert not (tmp_path / "model.onnx").exists()
    assert (tmp_path / "model-symbol.json").exists()


def test_save_with_onnx_exporter_error_reports_one_line(trained, tmp_path, monkeypatch):
    pytest.importorskip("onnx")

    def export(*arguments):
        raise AttributeError("No conversion function registered for op type magic yet.\nmore")

    monkeypatch.setattr(mx.onnx, "export_model", export)
    (message,) = save(trained, tmp_path)
    assert message == (
        "the final model was not exported to ONNX: MXNet's exporter cannot translate it (AttributeError: No conversion "
        "function registered for op type magic yet.)"
    )
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_save_to_unwritable_folder_names_it(trained):
    with pytest.raises(export.FinalModelError, match="cannot write the final model to /proc/model: "):
        save(trained, Path("/proc/model"))


@pytest.mark.parametrize("pages", [60, 30])  # of 61 that model.params takes; MXNet does not notice the last one
@pytest.mark.parametrize("small_disk", ["1m"], indirect=True)
def test_save_on_full_disk_names_it_and_leaves_nothing_behind(trained, small_disk, pages, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    folder = small_disk / "model"
    folder.mkdir()
    fill(small_disk, pages)
    with pytest.raises(export.FinalModelError, match=rf"final model to {folder}: No space left on device"):
        save(trained, folder)
    assert list(folder.iterdir()) == []
