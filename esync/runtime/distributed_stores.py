"""MXNet's distributed key stores are not for a worker of a cluster, which has one already.

ps-lite knows one cluster in a process and waits for its members in silence: `mx.kv.create` with such
a name would hang before the run, during it and after it.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

from .errors import ExpectedError

#: The names of the stores: MXNet makes a distributed one of every name with "dist" in it.
NAMES = (
    "dist",
    "dist_sync",
    "dist_async",
    "dist_device",
    "dist_device_sync",
    "dist_sync_device",
    "dist_device_async",
    "dist_async_device",
    "horovod",
    "byteps",
)

#: The last module of MXNet's package that is imported when the register of stores is there.
_AFTER_REGISTER = "mxnet.kvstore.kvstore_server"


class DistributedStoreError(ExpectedError):
    """A program makes a distributed key store of MXNet, and is a worker of a cluster."""


def create(mxnet: Any, name: str) -> Any:
    """Return MXNet's own key store of that name, which `install` refuses."""
    register = mxnet.kv.KVStoreBase.kv_registry
    refusal = register.pop(name)
    try:
        return mxnet.kv.create(name)
    finally:
        register[name] = refusal


def install() -> None:
    """Refuse distributed stores in workers, from the import of MXNet on."""
    sys.meta_path.insert(0, _Listener())


class _Listener(MetaPathFinder):
    """A finder that finds nothing, but learns that MXNet is being imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Register the names, ahead of MXNet's own stores, when the register is there."""
        if name == _AFTER_REGISTER:
            register = sys.modules["mxnet.kvstore.base"].KVStoreBase.kv_registry
            register.update({each: _refusal(each) for each in NAMES})


def _refusal(name: str) -> Callable[[], Any]:
    def made() -> Any:
        from .worker_environment import is_alone  # `import esync` should stay fast

        if os.environ.get("DMLC_ROLE", "worker") != "worker" or is_alone():
            return create(sys.modules["mxnet"], name)
        raise DistributedStoreError(
            f"the key store {name!r} cannot be made beside esync.Trainer, which exchanges with the other workers by "
            "itself: take trainer.rank and trainer.workers, after trainer.start(), in the place of kv.rank and "
            "kv.num_workers, and give gluon.Trainer no kvstore"
        )

    return made
