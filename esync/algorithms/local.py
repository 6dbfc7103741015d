"""Sequential SGD on one device: what the distributed algorithms' accuracy is compared with."""

from typing import Any

from ..exchange import ExchangeError, Result
from ..exchange.protocol.resume_negotiation import choose
from ..exchange.protocol.round_state import Ledger
from .base import Algorithm, Surroundings
from .registry import register
from .style import Style

#: Number of the job: there is no other worker whose parts could be mixed up with this one's.
JOB = 1


@register("local", label="Standalone", style=Style("#000000", ":", "v"))
class Local(Algorithm):
    """A step of the local optimizer per iteration; nothing is exchanged. Every iteration counts as a round."""

    sends = "nothing"

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        self._ledger = Ledger(1, True)

    def start(self, surroundings: Surroundings) -> None:
        """Open the books."""
        super().start(surroundings)
        self._ledger = Ledger(1, True, surroundings.limits)
        self._ledger.join(0, JOB, self.device.now())
        try:
            resume_at = choose({0: surroundings.past.offers(0, 1)})
        except ValueError as error:
            raise ExchangeError(str(error)) from None
        progress = surroundings.past.settle(0, JOB, resume_at, replacement=False)
        if progress is not None and progress.books is not None:
            self._ledger.resume(progress.books, self.device.now())
            self._report(used=False)

    def step(self, batch_size: int) -> None:
        """One local step."""
        self._local_step(batch_size)
        self._ledger.count(batch_size, self.device.now())
        self.exchanged = bool(self._ledger.used[0])
        self._report(self.exchanged)
        self.local_iterations = 1

    def stop(self) -> None:
        """End after this iteration."""
        self._ledger.stop()

    def _report(self, used: bool) -> None:
        """What the books say."""
        books = self._ledger
        self.round = books.round
        self.result = Result(
            books.round,
            books.version,
            books.samples,
            0.0,
            0.0,
            books.finished,
            used,
            elapsed=books.elapsed,
            needed=books.needed,
        )
