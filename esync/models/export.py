"""Export the final model of a run: Gluon's parameters, a symbol with parameters, ONNX."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.errors import ExpectedError
from ..runtime.exit_hooks import failure
from ..runtime.files import atomic_path, through_memory
from ..runtime.mxnet_arrays import array_module
from ..runtime.mxnet_import import mx

#: Common stem of all files.
NAME = "model"


class FinalModelError(ExpectedError):
    """Raised when the final model cannot be written; the message says why."""


def save(net: Any, folder: Path, shape: tuple[int, ...] | None, notify: Callable[[str], None]) -> None:
    """Write a trained network to a folder.

    * `model.params`: for net.load_parameters of the same network, built by the same code.
    * `model-symbol.json` and `model-0000.params`: for SymbolBlock.imports, without that code.
    * `model.onnx`: if the package onnx is installed and MXNet's exporter supports the network.

    Each file is written completely or, if that fails, removed.

    Args:
        net: a Gluon block.
        folder: the folder, which is created if it does not exist.
        shape: shape of an input, including the batch; None if unknown, in which case only
            `model.params` is written.
        notify: called with a message if only some of the files could be written.

    Raises:
        FinalModelError: `model.params` cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder / f"{NAME}.params") as path, through_memory(path) as memory:
            net.save_parameters(str(memory))
    except OSError as error:
        raise FinalModelError(f"cannot write the final model to {folder}: {error.strerror or error}") from None
    if shape is None:
        return
    symbol, parameters, onnx = (folder / f"{NAME}{end}" for end in ("-symbol.json", "-0000.params", ".onnx"))
    for path in (symbol, parameters, onnx):  # of an earlier run
        path.unlink(missing_ok=True)
    try:
        names = _export(net, symbol, parameters)
    except Exception as error:  # whatever the network does that has no graph, or a full disk
        symbol.unlink(missing_ok=True)
        notify(f"the final model is there as {NAME}.params only: {failure(error)}")
        return
    if problem := _to_onnx(net, names, symbol, parameters, onnx, shape):
        notify(f"the final model was not exported to ONNX: {problem}")


def _graph(net: Any) -> tuple[list[Any], Any]:
    """Return the inputs of a network and its graph, as symbols, without changing the network."""
    if not isinstance(net, mx.gluon.HybridBlock):
        raise FinalModelError("the network is a plain Block, not a HybridBlock, so that it has no graph")
    if net._cached_graph:  # it has been compiled
        return net._cached_graph
    attributes = dict(vars(net))
    try:  # it was trained without: the graph of one input, of which only the kind of array matters
        return net._get_graph(array_module().zeros(1))
    except Exception as error:
        raise FinalModelError(f"the network cannot be compiled ({failure(error)})") from None
    finally:
        vars(net).clear()
        vars(net).update(attributes)


def _export(net: Any, symbol: Path, parameters: Path) -> list[str]:
    """Write the files of Gluon's export; return the names of the inputs."""
    inputs, graph = _graph(net)
    kinds = dict.fromkeys(graph.list_arguments(), "arg") | dict.fromkeys(graph.list_auxiliary_states(), "aux")
    values = {
        f"{kinds[name]}:{name}": parameter._reduce()
        for name, parameter in net.collect_params().items()
        if name in kinds
    }
    with atomic_path(symbol) as path:
        path.write_text(graph.tojson(), encoding="utf-8")
    with atomic_path(parameters) as path, through_memory(path) as memory:
        # Arrays of mx.np have the same form in a file.
        mx.nd.save(str(memory), {name: value.as_nd_ndarray() for name, value in values.items()})
    return [node.name for node in inputs]


def _to_onnx(
    net: Any, inputs: Sequence[str], symbol: Path, parameters: Path, target: Path, shape: tuple[int, ...]
) -> str:
    """Translate an exported network to ONNX; return "" or the reason of a failure."""
    try:
        import onnx  # noqa: F401 - MXNet's exporter needs it
    except ImportError:
        return "the package onnx is not installed (pip install 'esync[onnx]')"
    if len(inputs) > 1:
        return f"the network has {len(inputs)} inputs ({', '.join(inputs)}), and input_shape is that of one"
    number_format = next((parameter.dtype for parameter in net.collect_params().values()), np.float32)
    logging.disable(logging.WARNING)  # the exporter logs what it does to the root logger
    try:
        with atomic_path(target) as path:
            mx.onnx.export_model(str(symbol), str(parameters), [shape], np.dtype(number_format).type, str(path))
    except Exception as error:  # the exporter may raise any exception
        return f"MXNet's exporter cannot translate it ({failure(error)})"
    finally:
        logging.disable(logging.NOTSET)
    return ""
