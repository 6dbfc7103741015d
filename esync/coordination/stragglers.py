"""Detection of stragglers for Sync-Switch, by a rule of throughputs.

The rule is a reconstruction: throughputs below the mean minus the standard deviation in several
windows in a row are what the paper (Li, Mangoubi, Xu, Guo, ICDCS 2021) is understood to compare.
The lengths of the window and of the row, the stride and the floor were chosen here; the authors'
repository has no detector.

A worker is suspect in a check if the throughput of its last steps is below the mean of all workers
minus their standard deviation, and below a share of the mean. After several such checks in a row it
is a straggler; after several checks in a row without suspicion it is not a straggler any more.
Times exclude waiting for other workers, because in synchronous training all take the same time
including it.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from .. import config


@dataclass(frozen=True)
class Detection:
    """The conditions under which a worker counts as a straggler.

    Attributes:
        window: steps of which the throughput is computed; config.STRAGGLER_WINDOW_MAX at most.
        stride: steps from one check to the next. With half a window, a single slow step affects two
            checks.
        raise_after: suspect checks in a row after which a worker is a straggler.
        clear_after: unsuspicious checks in a row after which it is not a straggler any more.
        sigmas: standard deviations below the mean of all workers.
        floor: share of the mean; without it, small differences between equal workers would count.
    """

    window: int = config.STRAGGLER_WINDOW
    stride: int = config.STRAGGLER_STRIDE
    raise_after: int = config.STRAGGLER_RAISE_AFTER
    clear_after: int = config.STRAGGLER_CLEAR_AFTER
    sigmas: float = config.STRAGGLER_SIGMAS
    floor: float = config.STRAGGLER_FLOOR

    def __post_init__(self) -> None:
        for name in ("window", "stride", "raise_after", "clear_after"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} should be 1 or more, not {getattr(self, name)}")
        if self.window > config.STRAGGLER_WINDOW_MAX:
            raise ValueError(f"window should be at most {config.STRAGGLER_WINDOW_MAX} steps, not {self.window}")
        if self.sigmas < 0 or not 0 < self.floor <= 1:
            raise ValueError(f"sigmas {self.sigmas} should be 0 or more, and floor {self.floor} above 0, at most 1")


class Detector:
    """Detects stragglers among equal workers by their throughputs.

    Args:
        workers: number of workers.
        detection: when one counts as a straggler.

    Attributes:
        stragglers: their ranks.
        speeds: rank → steps per second in its last window, if it has reported a whole one.
    """

    def __init__(self, workers: int, detection: Detection) -> None:
        self._detection = detection
        self._seconds: list[deque[float]] = [deque(maxlen=detection.window) for _ in range(workers)]
        self._fresh = [0] * workers  # steps since the last check
        self._suspect, self._clear = [0] * workers, [0] * workers  # checks in a row
        self.stragglers: frozenset[int] = frozenset()
        self.speeds: dict[int, float] = {}

    def add_steps(self, rank: int, steps: int, seconds: float) -> None:
        """Add steps of a worker, with their seconds without waiting."""
        self._seconds[rank].extend([seconds / steps] * min(steps, self._detection.window))
        self._fresh[rank] += steps

    def forget(self, rank: int) -> None:
        """Forget a worker's throughput, because another process has taken over its slot."""
        self._seconds[rank].clear()
        self._fresh[rank] = 0

    def update(self, waited_for: Collection[int]) -> bool:
        """Check the throughputs if a check is due; return whether the set of stragglers has changed.

        A check is due when every worker that rounds wait for has a full window of steps, and
        `stride` new ones since the last check. Other workers, which train at their own pace, are suspect if they have
        reported no new steps.
        """
        window, stride = self._detection.window, self._detection.stride
        if any(self._fresh[rank] < stride or len(self._seconds[rank]) < window for rank in waited_for):
            return False
        measured = [rank for rank, seconds in enumerate(self._seconds) if len(seconds) == window]
        self.speeds = {rank: window / max(sum(self._seconds[rank]), 1e-9) for rank in measured}
        mean, deviation = fmean(self.speeds.values()), pstdev(self.speeds.values())
        limit = min(mean - self._detection.sigmas * deviation, self._detection.floor * mean)
        limit -= 1e-9 * mean  # rounding must not decide if half of the workers are equally slow
        for rank, speed in self.speeds.items():
            suspect = speed < limit or not self._fresh[rank]
            self._suspect[rank] = self._suspect[rank] + 1 if suspect else 0
            self._clear[rank] = 0 if suspect else self._clear[rank] + 1
        self._fresh = [0] * len(self._fresh)
        before = self.stragglers
        self.stragglers = frozenset(rank for rank in range(len(self._fresh)) if self._counts(rank, rank in before))
        return self.stragglers != before

    def _counts(self, rank: int, before: bool) -> bool:
        """Return whether a worker counts as a straggler now."""
        if before:
            return self._clear[rank] < self._detection.clear_after
        return self._suspect[rank] >= self._detection.raise_after

    def state(self) -> dict[str, Any]:
        """Return everything that affects later checks, for JSON."""
        return {
            "seconds": [list(seconds) for seconds in self._seconds],
            "fresh": self._fresh,
            "suspect": self._suspect,
            "clear": self._clear,
            "stragglers": sorted(self.stragglers),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` has returned."""
        for seconds, saved in zip(self._seconds, state["seconds"], strict=True):
            seconds.extend(saved)
        self._fresh, self._suspect = list(state["fresh"]), list(state["suspect"])
        self._clear, self.stragglers = list(state["clear"]), frozenset(state["stragglers"])
