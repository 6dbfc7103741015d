"""Refuse MXNet's distributed key stores in a worker of a cluster, which has one already.

ps-lite knows one cluster in a process and waits for its members in silence: `mx.kv.create` with such
a name would hang before the run, during it and after it.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

from .errors import ExpectedError

#: Parts of the names of distributed stores; of unknown ones ("horovod") MXNet makes local ones.
NAMES = ("dist", "horovod", "byteps")

#: The first module of MXNet's package that is imported when the register of stores is there.
_AFTER_REGISTER = "mxnet.kvstore.kvstore_server"


class DistributedStoreError(ExpectedError):
    """A program makes a distributed key store of MXNet, and is a worker of a cluster."""


class StockRoleError(ExpectedError):
    """The import of MXNet would run its own server or scheduler."""


class _Register(dict[str, Any]):
    """MXNet's register of key stores, in which it looks before it makes one of its own."""

    def __contains__(self, name: object) -> bool:
        """Return whether a program has registered the name.

        Raises:
            DistributedStoreError: MXNet would make a distributed store, and this is a worker.
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
    """A finder that finds nothing, but notices the import of MXNet."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Replace the register as soon as it is there.

        Raises:
            StockRoleError: the import would become MXNet's own server or scheduler, and never end.
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
    """Refuse distributed stores in workers, from the import of MXNet on."""
    sys.meta_path.insert(0, _Listener())


def create(mxnet: Any, name: str) -> Any:
    """Return MXNet's own store of that name, in a worker, too."""
    base = mxnet.kv.KVStoreBase
    register, base.kv_registry = base.kv_registry, {}
    try:
        return mxnet.kv.create(name)
    finally:
        base.kv_registry = register


def _is_worker() -> bool:
    from .worker_environment import is_alone  # `import esync` should stay fast

    return os.environ.get("DMLC_ROLE", "worker") == "worker" and not is_alone()
