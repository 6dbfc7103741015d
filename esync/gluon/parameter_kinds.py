"""The kinds of a network's parameters: trained ones, statistics, and constants.

Values are exchanged as float32. Untrained parameters of types that float32 would round (integers,
booleans, float64) are constants: they are not exchanged, but compared at the start. Trained
parameters of these types raise an error.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..runtime.errors import ExpectedError, enumeration
from ..runtime.mxnet_import import mx


class UnsuitableParametersError(ExpectedError, ValueError):
    """The network has parameters that cannot be exchanged; the message names one and says why."""


def trained(parameters: Iterable[Any]) -> list[Any]:
    """Return the parameters that have gradients."""
    return [parameter for parameter in parameters if parameter.grad_req != "null"]


def statistics(parameters: Iterable[Any]) -> list[Any]:
    """Return the untrained parameters that are averaged: running statistics, and frozen layers."""
    return [parameter for parameter in parameters if parameter.grad_req == "null" and fits(parameter)]


def constants(parameters: Iterable[Any]) -> list[Any]:
    """Return the untrained parameters that float32 cannot represent; they are not exchanged."""
    return [parameter for parameter in parameters if parameter.grad_req == "null" and not fits(parameter)]


def rounds_weights(parameters: Iterable[Any]) -> bool:
    """Return whether float32 cannot represent the trained weights."""
    return not all(map(fits, trained(parameters)))


def distinct(params: Any) -> Any:
    """Return parameters without repetitions, such as tied ones that two blocks have."""
    if isinstance(params, (dict, mx.gluon.ParameterDict)):  # in gluon.Trainer's order
        params = [params[name] for name in sorted(params.keys())]
    if not isinstance(params, (list, tuple)):
        return params  # gluon.Trainer refuses it
    return list({id(parameter): parameter for parameter in params}.values())


def others_of(network_parameters: Iterable[Any], trained: Iterable[Any]) -> list[Any]:
    """Return the parameters of a network that a trainer does not have.

    Parameters that nobody initializes are left out: the network does not compute with them.
    """
    ids = {id(parameter) for parameter in trained}
    others = distinct([parameter for parameter in network_parameters if id(parameter) not in ids])
    return [parameter for parameter in others if parameter._data is not None or parameter._deferred_init]


def others_warning(others: Sequence[Any]) -> str:
    """Return what becomes of the parameters of `others_of`."""
    return (
        f"{len(others)} parameters of the network are not in the trainer "
        f"({enumeration([parameter.name for parameter in others], 3)}): they begin as worker 0's on all workers, and "
        "each exchange averages them as it does batch norm's statistics"
    )


def check_types(parameters: Iterable[Any], algorithm: str) -> None:
    """Check that parameters which change in training can be exchanged.

    Raises:
        UnsuitableParametersError: an exchange would round a parameter, or its gradient is sparse.
    """
    for parameter in parameters:
        if parameter.grad_req != "null" and parameter._grad_stype != "default":
            raise UnsuitableParametersError(
                f"the gradient of parameter {parameter.name} is sparse ({parameter._grad_stype}), but algorithm "
                f"{algorithm!r} exchanges dense values: build its layer with sparse_grad=False, or use algorithm "
                "'local'"
            )
        kind = np.dtype(parameter.dtype)
        running = kind.kind == "f" and not parameter._differentiable and not isinstance(parameter, mx.gluon.Constant)
        if not fits(parameter) and (parameter.grad_req != "null" or running):
            raise UnsuitableParametersError(
                f"parameter {parameter.name} is {kind}, but algorithm {algorithm!r} exchanges float32 values, to which "
                "it would be rounded: convert the network by net.cast('float32'), or use algorithm 'local'"
            )


def digests(parameters: Iterable[Any]) -> dict[str, str]:
    """Return a digest of the values of each constant, by its name.

    Names exclude the network's prefix, which Gluon numbers in each process, so it may differ between
    workers.
    """
    hashes: dict[str, Any] = {}
    for parameter in constants(parameters):
        values = np.ascontiguousarray(parameter.data().asnumpy())
        digest = hashes.setdefault(re.sub("^[^_]+_", "", parameter.name), hashlib.sha256())
        digest.update(f"{values.dtype} {values.shape}".encode() + values.tobytes())
    return {name: digest.hexdigest()[:12] for name, digest in hashes.items()}


def fits(parameter: Any) -> bool:
    """Return whether float32 represents all values of the parameter's type."""
    return np.dtype(parameter.dtype) in (np.float32, np.float16)
