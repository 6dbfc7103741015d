"""ESync: Gluon training on clusters of unequal devices.

`esync.Trainer` takes the place of `gluon.Trainer` in an ordinary Gluon loop. Importing this package never imports
MXNet by itself (the state server and the log tools run without it), but it prepares NumPy for it: import `esync`
before `mxnet`.
"""

import contextlib
import os
import sys

with contextlib.suppress(OSError):  # a current folder that is gone
    if sys.argv[:1] == ["-m"] and sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(__file__)):
        # `python -m esync.…` looks for modules in the current folder first: an algorithm's file there that is called
        # random.py would take the place of Python's own module.
        sys.path.append(sys.path.pop(0))

from typing import TYPE_CHECKING, Any

from . import numpy_aliases

if TYPE_CHECKING:
    from .checkpoint import Checkpoints
    from .exchange.ledger import Limits
    from .randomness import reseed
    from .trainer import Trainer

__version__ = "0.1.0"
__all__ = ["Checkpoints", "Limits", "Trainer", "__version__", "reseed"]

numpy_aliases.install()


def __getattr__(name: str) -> Any:
    """Import what needs MXNet only when it is asked for (PEP 562)."""
    if name == "Trainer":
        from .trainer import Trainer

        return Trainer
    if name == "Checkpoints":
        from .checkpoint import Checkpoints

        return Checkpoints
    if name == "reseed":
        from .randomness import reseed

        return reseed
    if name == "Limits":
        from .exchange.ledger import Limits

        return Limits
    raise AttributeError(f"module 'esync' has no attribute {name!r}")
