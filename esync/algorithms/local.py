"""Sequential SGD on one device: what the distributed algorithms' accuracy is compared with."""

from ..exchange import Result
from ..exchange.ledger import Ledger
from ..measure import COMPUTE, LOCAL_UPDATE
from .base import Algorithm, Surroundings


class Local(Algorithm):
    """A step of the local optimizer per iteration; nothing is exchanged. Every iteration counts as a round."""

    name = "local"

    def __init__(self) -> None:
        super().__init__()
        self._ledger = Ledger(1, True)

    def start(self, surroundings: Surroundings) -> None:
        """Open the books."""
        super().start(surroundings)
        self._ledger = Ledger(1, True, surroundings.limits)
        self._ledger.join(0, 1, self.device.now())

    def step(self, batch_size: int) -> None:
        """One local step."""
        with self.recorder.phase(LOCAL_UPDATE):
            self.replica.local_step(batch_size)
        with self.recorder.phase(COMPUTE):
            self.device.end_iteration()
        self._ledger.count(batch_size, self.device.now())
        books = self._ledger
        used = bool(books.used[0])
        self.result = Result(books.round, books.version, books.samples, 0.0, 0.0, books.finished, used)
        self.round = books.round
        self.local_iterations = 1
        self.exchanged = used

    def stop(self) -> None:
        """End after this iteration."""
        self._ledger.stop()
