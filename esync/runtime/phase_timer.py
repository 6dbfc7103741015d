"""Time the phases of every iteration, by the names that the log files use; all in seconds."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

CHECK_READY = "check ready"
GET_BATCH = "get_batch"
COMPUTE = "forward and backward"
LOCAL_UPDATE = "local update"
GLOBAL_UPDATE = "global update"  # mode esync
GLOBAL_AGGREGATE = "global aggregate"  # the modes that exchange every iteration

#: The field of a round that holds the seconds of each of its iterations, as the device took them.
ITERATION_TIMES = "iteration_times"


def iteration_times(entry: Mapping[str, Any]) -> list[float]:
    """Return the seconds that the device needed for each local iteration of a round.

    An iteration is everything from the end of the previous step to the end of this one's computing:
    loading the batch, the forward and backward pass, the local update, and what the loop does in
    between. Logs without the field ITERATION_TIMES tell the first three only, as phases.

    Args:
        entry: the content of a round file.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not the content of a round file.
    """
    if ITERATION_TIMES in entry:
        return [float(seconds) for seconds in entry[ITERATION_TIMES]]
    return [
        sum(float(phases.get(name, 0.0)) for name in (GET_BATCH, COMPUTE, LOCAL_UPDATE))
        for phases in entry["time"].values()
        # A batch that was given up (delayed ACK) has been computed in part, and is followed by an
        # exchange at once.
        if COMPUTE in phases and (GLOBAL_UPDATE not in phases or LOCAL_UPDATE in phases)
    ]


class PhaseTimer:
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
        self._times: list[float] = []
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

    def add_iteration(self, seconds: float) -> None:
        """Note that the device has ended an iteration, which took so many seconds."""
        self._times.append(seconds)

    def take(self) -> dict[str, Any]:
        """Return the round's `time`, `num_samples` and `iteration_times` as the log files have them.

        The next round begins. A round in which no iteration has ended has no `iteration_times`.
        """
        entries = {
            str(number): {name: round(seconds, 6) for name, seconds in phases.items()}
            for number, phases in enumerate(self._iterations)
        }
        taken: dict[str, Any] = {"time": entries, "num_samples": self.samples}
        if self._times:
            taken[ITERATION_TIMES] = [round(seconds, 6) for seconds in self._times]
        self._iterations, self._times, self.samples = [{}], [], 0
        return taken
