"""Export the final model of a run: Gluon's parameters, a symbol with parameters, ONNX."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.errors import ExpectedError
from ..runtime.files import atomic_path, through_memory
from ..runtime.mxnet_import import mx

#: Common stem of all files.
NAME = "model"


class FinalModelError(ExpectedError):
    """Raised when the final model cannot be written; the message says why."""


def save(net: Any, folder: Path, shape: tuple[int, ...] | None, context: Any, say: Callable[[str], None]) -> None:
    """Write a trained network to a folder.

    * `model.params`: net.load_parameters takes it, for the same network built by the same code.
    * `model-symbol.json` and `model-0000.params`: SymbolBlock.imports takes them, without that
      code.
    * `model.onnx`: where the package onnx is installed and MXNet's exporter can translate the
      network.

    Each file is either replaced as a whole or left as it was.

    Args:
        net: a Gluon block.
        folder: the folder, which is made if it does not exist.
        shape: shape of an input, including the batch. None if it is not known; only `model.params`
            is written then.
        context: the network's device.
        say: called with a message if the ONNX file could not be written.

    Raises:
        FinalModelError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder / f"{NAME}.params") as path, through_memory(path) as memory:
            net.save_parameters(str(memory))
        if shape is None:
            return
        graph, problem = _compiled(net, shape, context)
        if graph is None:
            say(f"the final model is there as {NAME}.params only: {problem}")
            return
        symbol, parameters = _export(net, graph, folder)
        problem = _to_onnx(symbol, parameters, folder / f"{NAME}.onnx", shape)
    except OSError as error:
        raise FinalModelError(f"cannot write the final model to {folder}: {error.strerror or error}") from None
    if problem:
        (folder / f"{NAME}.onnx").unlink(missing_ok=True)
        say(f"the final model was not exported to ONNX: {problem}")


def _compiled(net: Any, shape: tuple[int, ...], context: Any) -> tuple[Any, str]:
    """Return the graph of a network as a symbol, and "".

    If the network has no graph, return None and the reason.
    """
    if not isinstance(net, mx.gluon.HybridBlock):
        return None, "the network is a plain Block, not a HybridBlock, so that it has no graph"
    if net._active:  # it has been compiled already
        net(mx.nd.zeros(shape, ctx=context))
        return net._cached_graph[1], ""
    try:
        net.hybridize()
        net(mx.nd.zeros(shape, ctx=context))
    except Exception as error:  # it was trained without, with --no-hybridize
        reason = str(error).strip().partition("\n")[0]
        return None, f"the network cannot be compiled ({type(error).__name__}: {reason})"
    return net._cached_graph[1], ""


def _export(net: Any, symbol: Any, folder: Path) -> tuple[Path, Path]:
    """Write the files that Gluon's export writes; return their paths."""
    kinds = dict.fromkeys(symbol.list_arguments(), "arg") | dict.fromkeys(symbol.list_auxiliary_states(), "aux")
    parameters = {name: each for name, each in net.collect_params().items() if name in kinds}
    named = folder / f"{NAME}-symbol.json", folder / f"{NAME}-0000.params"
    with atomic_path(named[0]) as path:
        path.write_text(symbol.tojson(), encoding="utf-8")
    with atomic_path(named[1]) as path, through_memory(path) as memory:
        mx.nd.save(str(memory), {f"{kinds[name]}:{name}": each._reduce() for name, each in parameters.items()})
    return named


def _to_onnx(symbol: Path, parameters: Path, target: Path, shape: tuple[int, ...]) -> str:
    """Translate an exported network; return "", or why that was not possible."""
    try:
        import onnx  # noqa: F401 - MXNet's exporter needs it
    except ImportError:
        return "the package onnx is not installed (pip install 'esync[onnx]')"

    logging.disable(logging.WARNING)  # the exporter logs what it does to the root logger
    try:
        with atomic_path(target) as path:
            mx.onnx.export_model(str(symbol), str(parameters), [shape], np.float32, str(path))
    except OSError:
        raise
    except Exception as error:  # whatever the exporter stumbles over
        reason = str(error).strip().partition("\n")[0]
        return f"MXNet's exporter cannot translate it ({type(error).__name__}: {reason})"
    finally:
        logging.disable(logging.NOTSET)
    return ""
