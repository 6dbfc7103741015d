"""Measure the phases of every iteration in seconds, with the names in the log files."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .metric import finite

CHECK_READY = "check ready"
GET_BATCH = "get_batch"
COMPUTE = "forward and backward"
LOCAL_UPDATE = "local update"
GLOBAL_UPDATE = "global update"  # mode esync
GLOBAL_AGGREGATE = "global aggregate"  # the modes that exchange every iteration

#: Field of a round file with the seconds that the device needed for each iteration.
ITERATION_TIMES = "iteration_times"
#: Field of a round file with the means of what the program has logged, by name.
LOGGED = "logged"


def iteration_times(entry: Mapping[str, Any]) -> list[float]:
    """Return the seconds that the device needed for each local iteration of a round.

    An iteration lasts from the end of the previous step to the end of this one's computing: loading the
    batch, the forward and backward pass, the local update, and the loop's other code. Logs without the
    field ITERATION_TIMES only have the first three, as phases.

    Args:
        entry: the content of a round file.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: `entry` is not the content of a round file.
    """
    if ITERATION_TIMES in entry:
        return [float(seconds) for seconds in entry[ITERATION_TIMES]]
    return [
        sum(float(phases.get(name, 0.0)) for name in (GET_BATCH, COMPUTE, LOCAL_UPDATE))
        for phases in entry["time"].values()
        # A discarded batch (delayed ACK) is computed in part, and followed by an exchange at once.
        if COMPUTE in phases and (GLOBAL_UPDATE not in phases or LOCAL_UPDATE in phases)
    ]


class PhaseTimer:
    """Collects the phases of one round.

    Args:
        now: a clock in seconds.

    Attributes:
        samples: number of samples in the current round.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._window: int | None = None
        self._iterations: deque[dict[str, float]] = deque([{}])
        self._times: deque[float] = deque()
        self.samples = 0
        self._logged: dict[str, tuple[float, int]] = {}  # name → mean and number of the values
        self._begun = now()

    def keep_newest(self, iterations: int) -> None:
        """Keep the newest `iterations` iterations only, in case `take` is never called.

        `take` numbers the kept iterations from 0.
        """
        self._window = iterations
        self._iterations = deque(self._iterations, iterations)
        self._times = deque(self._times, iterations)

    def begin_iteration(self) -> None:
        """Record that the next iteration begins now."""
        self._begun = self._now()

    def end_computing(self, again: bool = False) -> None:
        """Count the time since `begin_iteration` as computing, unless the loop has measured that phase.

        Other measured phases, such as loading the batch, are subtracted.

        Args:
            again: whether this may be called several times in an iteration, because several
                optimizers step in it.
        """
        phases = self._iterations[-1]
        if again or COMPUTE not in phases:
            self.add(COMPUTE, max(0.0, self._now() - self._begun - sum(phases.values())))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time of the `with` block out of the computing."""
        before = self._now() - self._begun
        try:
            yield
        finally:
            self._begun = self._now() - before

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the `with` block to a phase of this iteration."""
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
        """Begin the entry of the next iteration."""
        self._iterations.append({})

    def add_iteration(self, seconds: float) -> None:
        """Record that the device has finished an iteration of `seconds` seconds."""
        self._times.append(seconds)

    def log(self, name: str, value: float) -> None:
        """Count a number to its mean over the round."""
        mean, count = self._logged.get(name, (0.0, 0))
        self._logged[name] = mean + (value - mean) / (count + 1), count + 1  # exact where all values are equal

    def take(self) -> dict[str, Any]:
        """Return the round's entries of the log files, and reset.

        These are `time`, `num_samples`, `iteration_times` unless no iteration has ended, and `logged` if
        anything was logged, with None for a mean that is not finite.
        """
        entries = {
            str(number): {name: round(seconds, 6) for name, seconds in phases.items()}
            for number, phases in enumerate(self._iterations)
        }
        record: dict[str, Any] = {"time": entries, "num_samples": self.samples}
        if self._times:
            record[ITERATION_TIMES] = [round(seconds, 6) for seconds in self._times]
        if self._logged:
            record[LOGGED] = {name: finite(mean) for name, (mean, _) in self._logged.items()}
        self._logged = {}
        self._iterations, self._times, self.samples = deque([{}], self._window), deque(maxlen=self._window), 0
        return record
