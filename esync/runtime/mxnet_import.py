"""Import MXNet, here and nowhere else: `from esync.runtime.mxnet_import import mx`.

It takes care of two traps. A missing MXNet becomes one sentence instead of a traceback. And
importing MXNet with DMLC_ROLE set to server or scheduler never returns, because the stock role's
loop runs inside the import; so the variable is taken away for the time of the import and put back
afterwards. What MXNet imports for quantization and its own tests only, a third of the time that its
import takes, is left until somebody uses it.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from . import numpy_aliases
from .errors import ExpectedError


class EngineMissingError(ExpectedError, ImportError):
    """MXNet is not installed; the message says which extra brings it."""


class _LaterModule:
    """A module that is imported when something in it is used."""

    __spec__ = None  # the import statement asks whether it is being imported just now

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


@contextlib.contextmanager
def _statistics_later() -> Iterator[None]:
    """Who imports scipy.stats in this with statement gets what imports it later."""
    try:
        scipy: Any = importlib.import_module("scipy")
    except ImportError:  # MXNet does without
        scipy = None
    if scipy is None or "scipy.stats" in sys.modules:
        yield
        return
    scipy.stats = sys.modules["scipy.stats"] = _LaterModule("scipy.stats")  # type: ignore[assignment]
    try:
        yield
    finally:
        del scipy.stats, sys.modules["scipy.stats"]


def _import_mxnet() -> Any:
    numpy_aliases.install()
    role = os.environ.pop("DMLC_ROLE", None)
    try:
        with _statistics_later():
            import mxnet
    except ModuleNotFoundError as error:
        if error.name != "mxnet":
            raise
        raise EngineMissingError(
            "MXNet is not installed: install this package with one of its extras, for instance "
            "pip install 'esync[cpu]' (or cu101, cu112, cu117 for that version of CUDA).",
            name="mxnet",
        ) from None
    finally:
        if role is not None:
            os.environ["DMLC_ROLE"] = role
    return mxnet


mx: Any = _import_mxnet()
