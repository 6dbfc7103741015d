"""Import MXNet, here and nowhere else: `from esync.runtime.mxnet_import import mx`.

A missing MXNet gives one sentence instead of a traceback. The import of MXNet with DMLC_ROLE set to
server or scheduler would never return, because it runs the loop of MXNet's own role; therefore the
variable is removed during the import and restored afterwards. The import takes less than half of its
usual time: modules that MXNet needs only for quantization and its own tests are imported when they are
first used, and the code of its operators' functions is cached (`mxnet_operators`).
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from . import numpy_aliases
from .cores import affinity, cores
from .errors import ExpectedError
from .mxnet_operators import kept_code


class EngineMissingError(ExpectedError, ImportError):
    """Raised when MXNet is not installed; the message says which extra installs it."""


class _LaterModule:
    """A module that is imported when one of its attributes is first used."""

    __spec__ = None  # the import statement checks whether the module is being imported

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


@contextlib.contextmanager
def _statistics_later() -> Iterator[None]:
    """Replace scipy.stats, inside the `with` block, by a module that is imported later."""
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
    if (usable := cores()) < affinity():
        os.environ.setdefault("OMP_NUM_THREADS", str(usable))
    role = os.environ.pop("DMLC_ROLE", None)
    try:
        with _statistics_later(), kept_code():
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
