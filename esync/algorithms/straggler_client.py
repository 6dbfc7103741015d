"""A worker's side of the online policies: it tells its own seconds, and knows what the state server wants."""

from ..coordination import Coordination
from ..coordination.straggler_policies import Directive
from ..runtime.futures import Handle


class Outlook:
    """Tells one step after the other, without waiting for answers; steps that end meanwhile are told together.

    Args:
        coordination: of this worker.

    Attributes:
        directive: the newest one that has arrived.
    """

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._question: Handle[Directive] | None = None
        self._told, self._steps, self._seconds = 0, 0, 0.0
        self.directive = Directive()

    def step(self, seconds: float) -> None:
        """A step has taken this worker so many seconds of its own."""
        self._steps += 1
        self._seconds += seconds
        if self._question is not None:
            if not self._question.done():
                return
            self.directive = self._question.result()
        self._question = self._coordination.tell(self._told, self._steps, self._seconds)
        self._told, self._steps, self._seconds = self._told + self._steps, 0, 0.0

    def close(self) -> None:
        """No more."""
        self._coordination.close()
