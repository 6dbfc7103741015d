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

from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import fmean, pstdev

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


@dataclass
class Measurements:
    """What a worker has reported.

    Attributes:
        seconds: of its last steps, a window of them at most.
        fresh: steps since the last check.
        suspect: suspect checks in a row.
        clear: unsuspicious checks in a row.
    """

    seconds: list[float] = field(default_factory=list)
    fresh: int = 0
    suspect: int = 0
    clear: int = 0


@dataclass
class Detector:
    """Detects stragglers among equal workers by their throughputs.

    Attributes:
        detection: when a worker counts as a straggler.
        workers: what each worker has reported.
        stragglers: their ranks.
        speeds: rank → steps per second in its last window, if it has reported a whole one.
    """

    detection: Detection
    workers: list[Measurements]
    stragglers: frozenset[int] = frozenset()
    speeds: dict[int, float] = field(default_factory=dict)

    def add_steps(self, rank: int, steps: int, seconds: float) -> None:
        """Add steps of a worker, with their seconds without waiting."""
        worker, window = self.workers[rank], self.detection.window
        worker.seconds = [*worker.seconds, *[seconds / steps] * min(steps, window)][-window:]
        worker.fresh += steps

    def forget(self, rank: int) -> None:
        """Forget a worker's throughput, because another process has taken over its slot."""
        self.workers[rank].seconds, self.workers[rank].fresh = [], 0

    def update(self, waited_for: Collection[int]) -> bool:
        """Check the throughputs if a check is due; return whether the set of stragglers has changed.

        A check is due when every worker that rounds wait for has a full window of steps, and
        `stride` new ones since the last check. Other workers, which train at their own pace, are suspect if they have
        reported no new steps.
        """
        window, stride = self.detection.window, self.detection.stride
        awaited = [self.workers[rank] for rank in waited_for]
        if any(worker.fresh < stride or len(worker.seconds) < window for worker in awaited):
            return False
        measured = [rank for rank, worker in enumerate(self.workers) if len(worker.seconds) == window]
        self.speeds = {rank: window / max(sum(self.workers[rank].seconds), 1e-9) for rank in measured}
        mean, deviation = fmean(self.speeds.values()), pstdev(self.speeds.values())
        limit = min(mean - self.detection.sigmas * deviation, self.detection.floor * mean)
        limit -= 1e-9 * mean  # rounding must not decide if half of the workers are equally slow
        for rank, speed in self.speeds.items():
            worker = self.workers[rank]
            suspect = speed < limit or not worker.fresh
            worker.suspect = worker.suspect + 1 if suspect else 0
            worker.clear = 0 if suspect else worker.clear + 1
        for worker in self.workers:
            worker.fresh = 0
        before = self.stragglers
        self.stragglers = frozenset(rank for rank in range(len(self.workers)) if self._counts(rank, rank in before))
        return self.stragglers != before

    def _counts(self, rank: int, before: bool) -> bool:
        """Return whether a worker counts as a straggler now."""
        if before:
            return self.workers[rank].clear < self.detection.clear_after
        return self.workers[rank].suspect >= self.detection.raise_after
