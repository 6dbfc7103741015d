"""The one place where MXNet is imported: `from esync.engine import mx`.

It takes care of two traps. A missing MXNet becomes one sentence instead of a traceback. And importing MXNet with
DMLC_ROLE set to server or scheduler never returns, because the stock role's loop runs inside the import; so the
variable is taken away for the time of the import and put back afterwards.
"""

import os
from typing import Any

from . import numpy_aliases
from .errors import ExpectedError


class EngineMissingError(ExpectedError, ImportError):
    """MXNet is not installed; the message says which extra brings it."""


def _import_mxnet() -> Any:
    numpy_aliases.install()
    role = os.environ.pop("DMLC_ROLE", None)
    try:
        import mxnet
    except ModuleNotFoundError as error:
        if error.name != "mxnet":
            raise
        raise EngineMissingError(
            "MXNet is not installed: install this package with one of its extras, for instance "
            "pip install 'esync[cpu]' (or cu101, cu112, cu117 for that version of CUDA)."
        ) from None
    finally:
        if role is not None:
            os.environ["DMLC_ROLE"] = role
    return mxnet


mx = _import_mxnet()
