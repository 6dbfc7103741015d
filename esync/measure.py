"""What the log of a round says: the phases of every iteration, in seconds, by the names that the log files use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CHECK_READY = "check ready"
GET_BATCH = "get_batch"
COMPUTE = "forward and backward"
LOCAL_UPDATE = "local update"
GLOBAL_UPDATE = "global update"  # mode esync
GLOBAL_AGGREGATE = "global aggregate"  # the modes that exchange every iteration


class Recorder:
    """Collects the phases of one round.

    Args:
        now: a clock in seconds.

    Attributes:
        samples: of the round under way.
        loss: mean loss of the last batch; None where nobody computes one.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._iterations: list[dict[str, float]] = [{}]
        self.samples = 0
        self.loss: float | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time that the body of the with statement takes to a phase of this iteration."""
        begun = self._now()
        try:
            yield
        finally:
            self.add(name, self._now() - begun)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a phase of this iteration."""
        iteration = self._iterations[-1]
        iteration[name] = iteration.get(name, 0.0) + seconds

    def next_iteration(self) -> None:
        """What follows belongs to the next entry."""
        self._iterations.append({})

    def take(self) -> dict[str, Any]:
        """The round's `time` and `num_samples` as the log files have them; begins the next round."""
        entries = {
            str(number): {name: round(seconds, 6) for name, seconds in phases.items()}
            for number, phases in enumerate(self._iterations)
        }
        taken = {"time": entries, "num_samples": self.samples}
        self._iterations, self.samples = [{}], 0
        return taken
