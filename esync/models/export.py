"""Export the final model of a run: Gluon's parameters, a symbol with parameters, ONNX."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.errors import ExpectedError
from ..runtime.files import atomic_path, through_memory
from ..runtime.mxnet_import import mx

#: What all its files are called.
NAME = "model"


class FinalModelError(ExpectedError):
    """The final model cannot be written; the message says why."""


def save(net: Any, folder: Path, shape: tuple[int, ...], context: Any, say: Callable[[str], None]) -> None:
    """Write a trained network into a folder.

    * `model.params`: net.load_parameters takes it, for the same network built by the same code.
    * `model-symbol.json` and `model-0000.params`: SymbolBlock.imports takes them, without that
      code.
    * `model.onnx`: where the package onnx is installed and MXNet's exporter can translate the
      network.

    Every file is there as a whole, or as it was before.

    Args:
        net: a hybrid block.
        folder: made where it is not there.
        shape: of one input, the batch included.
        context: the network's device.
        say: told what could not be written, and why.

    Raises:
        FinalModelError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder / f"{NAME}.params") as path, through_memory(path) as memory:
            net.save_parameters(str(memory))
        symbol, parameters = _export(net, folder, shape, context)
        problem = _to_onnx(symbol, parameters, folder / f"{NAME}.onnx", shape)
    except OSError as error:
        raise FinalModelError(f"cannot write the final model to {folder}: {error.strerror or error}") from None
    if problem:
        (folder / f"{NAME}.onnx").unlink(missing_ok=True)
        say(f"the final model is not there as ONNX: {problem}")


def _export(net: Any, folder: Path, shape: tuple[int, ...], context: Any) -> tuple[Path, Path]:
    """What Gluon's export writes; it wants a hybridized network that has seen an input."""
    if not net._active:
        net.hybridize()
    net(mx.nd.zeros(shape, ctx=context))
    symbol = net._cached_graph[1]
    kinds = dict.fromkeys(symbol.list_arguments(), "arg") | dict.fromkeys(symbol.list_auxiliary_states(), "aux")
    parameters = {name: each for name, each in net.collect_params().items() if name in kinds}
    named = folder / f"{NAME}-symbol.json", folder / f"{NAME}-0000.params"
    with atomic_path(named[0]) as path:
        path.write_text(symbol.tojson())
    with atomic_path(named[1]) as path, through_memory(path) as memory:
        mx.nd.save(str(memory), {f"{kinds[name]}:{name}": each._reduce() for name, each in parameters.items()})
    return named


def _to_onnx(symbol: Path, parameters: Path, target: Path, shape: tuple[int, ...]) -> str:
    """Translate an exported network; "" or why that was not possible."""
    try:
        import onnx  # noqa: F401 - MXNet's exporter needs it
    except ImportError:
        return "the package onnx is not installed (pip install 'esync[onnx]')"

    logging.disable(logging.WARNING)  # the exporter tells the root logger what it does
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
