"""Tasks and waits of a worker's store in virtual time."""

from collections.abc import Callable

from .. import config
from ..exchange import ExchangeError
from .engine import SimulationEngine, VirtualFuture


class VirtualTask(VirtualFuture[None]):
    """Work in a separate task; see `protocol.store.StoreTask`.

    Args:
        engine: the simulation's engine.
        name: its name in messages.
        work: the function that it runs.
        cancel: function that ends its wait.

    Attributes:
        cancel: see `StoreTask.cancel`.
        task: the engine's task.
    """

    def __init__(
        self, engine: SimulationEngine, name: str, work: Callable[[], None], cancel: Callable[[], None]
    ) -> None:
        super().__init__(engine, name)
        self._work, self.cancel = work, cancel
        self.task = engine.spawn(name, self._run)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._engine.settle()
            self.fail(error)
        else:
            self._engine.settle()
            self.complete(None)


class VirtualWait:
    """A wait with a limit in virtual time; see `protocol.store.StoreWait`."""

    def __init__(self, engine: SimulationEngine, what: str) -> None:
        self.what = what
        self._engine, self._deadline = engine, engine.now + config.ROUND_TIMEOUT

    def __enter__(self) -> "VirtualWait":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def check(self) -> None:
        """See `StoreWait.check`."""
        if self._engine.now > self._deadline:
            raise ExchangeError(f"gave up waiting for {self.what}")
