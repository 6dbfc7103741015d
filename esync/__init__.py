"""ESync: Gluon training on clusters of unequal devices.

`esync.Trainer` takes the place of `gluon.Trainer` in an ordinary Gluon loop. Importing this package
never imports MXNet by itself (the state server and the log tools run without it), but it prepares
NumPy for it: import `esync` before `mxnet`. It also prepares standard output and standard error,
which write characters that their encoding lacks as escapes from then on.
"""

import contextlib
import os
import sys

with contextlib.suppress(OSError):  # a current folder that is gone
    if sys.argv[:1] == ["-m"] and sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(__file__)):
        # `python -m esync.…` looks for modules in the current folder first: an algorithm's file
        # there that is called random.py would take the place of Python's own module.
        sys.path.append(sys.path.pop(0))

import importlib
from typing import TYPE_CHECKING

from .runtime import distributed_stores, numpy_aliases, output
from .version import __version__

if TYPE_CHECKING:
    from . import algorithms, data, loggers, world
    from .checkpoints.checkpoints import Checkpoints
    from .exchange.protocol.round_state import Limits
    from .gluon.batch_sampler import BatchSampler
    from .gluon.common_lr_scheduler import CommonLRScheduler
    from .gluon.randomness import reseed
    from .gluon.reduce_on_plateau import ReduceOnPlateau
    from .gluon.shard import shard
    from .reports.comparison import compare
    from .runtime.mxnet_device import context
    from .runtime.mxnet_import import mx
    from .trainer import Trainer
    from .trainer_callbacks import TrainerCallback
    from .training.estimator_handler import EstimatorHandler
    from .training.run import Run

__all__ = [
    "BatchSampler",
    "Checkpoints",
    "CommonLRScheduler",
    "EstimatorHandler",
    "Limits",
    "ReduceOnPlateau",
    "Run",
    "Trainer",
    "TrainerCallback",
    "__version__",
    "algorithms",
    "compare",
    "context",
    "data",
    "loggers",
    "mx",
    "reseed",
    "shard",
    "world",
]

#: Public name → the module that defines it. Names are imported when they are asked for, because
#: most need MXNet.
_MODULES = {
    "BatchSampler": "gluon.batch_sampler",
    "Checkpoints": "checkpoints.checkpoints",
    "CommonLRScheduler": "gluon.common_lr_scheduler",
    "EstimatorHandler": "training.estimator_handler",
    "Limits": "exchange.protocol.round_state",
    "ReduceOnPlateau": "gluon.reduce_on_plateau",
    "Run": "training.run",
    "Trainer": "trainer",
    "TrainerCallback": "trainer_callbacks",
    "compare": "reports.comparison",
    "context": "runtime.mxnet_device",
    "mx": "runtime.mxnet_import",
    "reseed": "gluon.randomness",
    "shard": "gluon.shard",
}

output.prepare()
numpy_aliases.install()
distributed_stores.install()


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # to a type checker, this function would mean that the package has every name

    def __getattr__(name: str) -> object:
        """Import a public name when it is asked for (PEP 562)."""
        if name in _MODULES:
            return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
        if name in __all__:
            return importlib.import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
