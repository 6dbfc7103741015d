"""--collective auto: measures the network, asks the cost model, and goes on measuring while the job runs."""

import logging

from .autotuner import Choice
from .cost import predictions
from .engine import Engine
from .measuring import measure
from .transport import Transport

log = logging.getLogger(__name__)


class AutoEngine(Engine):
    """An engine whose collective may be another one in every exchange; all ranks change together.

    Args:
        transport: to the other ranks.
        own: whether the transport has an allreduce of its own.
    """

    def __init__(self, transport: Transport, own: bool = True) -> None:
        super().__init__("auto", transport)
        self.current = "ring"  # until there is a choice
        self._own = own
        self._choice: Choice | None = None
        self._measured = False

    def measure(self, size: int) -> None:
        """See `Engine.measure`."""
        if self.transport.size < 2:
            return
        costs = measure(self.transport)
        predicted = predictions(self.transport.size, size, costs)
        if not self._own:
            del predicted["mpi"]
        self._choice = Choice(predicted)
        self.current = self._choice.current
        self._say(f"{self.current} for {size / 1e6:.1f} MB ({costs.words()}; {self._choice.reason})")

    def agree(self, notes: tuple[float, ...]) -> None:
        """See `Engine.agree`: the notes are what the last exchange took on each rank."""
        if self._choice is None or not all(notes):
            return
        settled = self._choice.settled
        self._choice.took(max(notes))
        self.current = self._choice.current
        if settled and not self._choice.settled:
            self._say(f"{self._choice.reason}: trying the others")
        elif self._choice.settled and not settled:
            self._say(f"{self.current} from now on ({self._choice.reason})")

    def took(self, size: int, seconds: float) -> None:
        """See `Engine.took`."""
        self.note = seconds

    def _say(self, text: str) -> None:
        if self.transport.rank == 0:
            log.info("collective: %s", text)
