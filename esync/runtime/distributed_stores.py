"""Refuse MXNet's distributed key stores in a worker of a cluster, which has one already.

ps-lite supports one cluster per process, and waits for its members without any message: `mx.kv.create`
with such a name would hang.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

from .errors import ExpectedError

#: Parts of the names of distributed stores; for unknown names ("horovod") MXNet creates local ones.
NAMES = ("dist", "horovod", "byteps")

#: The first module of MXNet that is imported after the register of stores exists.
_AFTER_REGISTER = "mxnet.kvstore.kvstore_server"


class DistributedStoreError(ExpectedError):
    """Raised when a worker of a cluster creates a distributed key store of MXNet."""


class StockRoleError(ExpectedError):
    """Raised when the import of MXNet would run its own server or scheduler."""


class _Register(dict[str, Any]):
    """MXNet's register of key stores, in which it looks up names before it creates a store of its own."""

    def __contains__(self, name: object) -> bool:
        """Return whether a program has registered the name.

        Raises:
            DistributedStoreError: MXNet would create a distributed store, and this is a worker.
        """
        registered = super().__contains__(name)
        if not registered and any(part in str(name) for part in NAMES) and _is_worker():
            raise DistributedStoreError(
                f"the key store {name!r} cannot be made beside esync.Trainer, which exchanges with the other workers "
                "by itself: take trainer.rank and trainer.workers, after trainer.start(), in the place of kv.rank and "
                "kv.num_workers, and give gluon.Trainer no kvstore"
            )
        return registered


class _Listener(MetaPathFinder):
    """A finder that finds nothing, but detects the import of MXNet."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Replace the register as soon as it exists.

        Raises:
            StockRoleError: the import would run MXNet's own server or scheduler, and never return.
        """
        if name == _AFTER_REGISTER:
            if (role := os.environ.get("DMLC_ROLE")) in ("server", "scheduler"):
                raise StockRoleError(
                    f"DMLC_ROLE is {role!r}, and MXNet would run its own {role} in this import, which ESync's workers "
                    f"cannot use: start python -m esync.{role} in the place of this program (python -m esync.worker "
                    "takes the role that DMLC_ROLE names)"
                )
            base = sys.modules["mxnet.kvstore.base"].KVStoreBase
            base.kv_registry = _Register(base.kv_registry)


def install() -> None:
    """Refuse distributed stores in workers as soon as MXNet is imported."""
    sys.meta_path.insert(0, _Listener())


def create(mxnet: Any, name: str) -> Any:
    """Return MXNet's own store of that name, even in a worker."""
    base = mxnet.kv.KVStoreBase
    register, base.kv_registry = base.kv_registry, {}
    try:
        return mxnet.kv.create(name)
    finally:
        base.kv_registry = register


def _is_worker() -> bool:
    from .worker_environment import is_alone  # `import esync` should stay fast

    return os.environ.get("DMLC_ROLE", "worker") == "worker" and not is_alone()
