"""The collectives as key stores of MXNet, so that gluon.Trainer finds them by name.

    import esync.kvstores
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore="ring"
    )

The processes are started by mpiexec, one for each device. As with MXNet's own distributed stores,
gradients are summed over the workers; the optimizer runs on each of them, with the same result.
"""

import functools
import sys
from types import TracebackType
from typing import Any

import numpy as np

from . import config
from .exchange.collectives import SCHEDULES
from .exchange.collectives.engine import CollectiveEngine
from .exchange.collectives.mpi import MPITransport
from .exchange.collectives.transport import Backoff
from .runtime.mxnet_arrays import like
from .runtime.mxnet_import import mx
from .runtime.watchdog import Watchdog

__all__ = ["NAMES", "CollectiveStore"]

NAMES = (*SCHEDULES, "mpi")


@functools.lru_cache(maxsize=1)
def _transport() -> MPITransport:
    """Return the transport to the other ranks, one for all stores of this process."""
    import atexit

    transport = MPITransport()
    print_error = sys.excepthook

    def abort(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        print_error(kind, error, trace)
        sys.stderr.flush()
        transport.abort()  # the others would wait for this process for ever

    sys.excepthook = abort
    atexit.register(transport.close)
    return transport


class CollectiveStore(mx.kv.KVStoreBase):
    """Key store that sums over the ranks of MPI; the registered classes differ only in `name`."""

    name = "ring"

    def __init__(self, name: str | None = None) -> None:
        self._engine = CollectiveEngine(name or self.name, _transport())
        self._watchdog = Watchdog()

    @property
    def type(self) -> str:
        """The name, with "dist" in front, which tells Gluon that there are other processes."""
        return f"dist_{self._engine.name}"

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self._engine.transport.rank

    @property
    def num_workers(self) -> int:
        """Number of processes."""
        return self._engine.transport.size

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Return False for "optimizer", as there is no server to run one."""
        if capability.lower() == mx.kv.KVStoreBase.OPTIMIZER:
            return False
        raise ValueError(f"unknown capability {capability!r}; known: {mx.kv.KVStoreBase.OPTIMIZER}")

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Copy rank 0's value into `out` on all ranks."""
        for _, given, taken in _each(key, value, out):
            mine = given[0].asnumpy()
            _put(self._sum(mine if self.rank == 0 else np.zeros_like(mine)), taken)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum the value over all ranks and all devices of each.

        The sum is written to `out`, or back to `value` where there is no `out`.
        """
        for _, given, taken in _each(key, value, out):
            total = given[0].asnumpy()
            for other in given[1:]:
                total = total + other.asnumpy()
            _put(self._sum(total), taken)

    def _sum(self, values: np.ndarray) -> np.ndarray:
        values = np.array(values, order="C")  # MXNet may hand out a view that cannot be written
        with self._watchdog.waiting("the sum over all workers", config.ROUND_TIMEOUT) as wait:
            self._engine.run(values.reshape(-1), Backoff(config.COLLECTIVE_PAUSE), wait.check)
        return values


def _each(key: Any, value: Any, out: Any) -> list[tuple[Any, list[Any], list[Any]]]:
    """Return each key with its list of values and its list of targets.

    Gluon gives one key or several, and for each of them one array or several.
    """
    if not isinstance(key, (list, tuple)):
        key, value, out = [key], [value], [out]
    out = [None] * len(key) if out is None else out
    pairs = []
    for name, given, taken in zip(key, value, out, strict=True):
        arrays = list(given) if isinstance(given, (list, tuple)) else [given]
        targets = arrays if taken is None else list(taken) if isinstance(taken, (list, tuple)) else [taken]
        pairs.append((name, arrays, targets))
    return pairs


def _put(values: np.ndarray, arrays: list[Any]) -> None:
    for array in arrays:
        array[:] = like(mx.nd.array(values, ctx=array.context, dtype=array.dtype), array)


def _register() -> None:
    for name in NAMES:
        mx.kv.KVStoreBase.kv_registry[name] = type(name, (CollectiveStore,), {"name": name, "__doc__": name})
    original = mx.gluon.trainer._create_kvstore

    @functools.wraps(original)
    def create(kvstore: Any, devices: int, arrays: Any) -> Any:
        """Make a store of this module by name.

        Gluon leaves a store out where there is one device, unless "dist" is in its name.
        """
        if isinstance(kvstore, str) and kvstore.lower() in NAMES:
            kvstore = mx.kv.create(kvstore)
        return original(kvstore, devices, arrays)

    mx.gluon.trainer._create_kvstore = create


_register()
