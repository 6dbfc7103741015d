"""Statistics of measured iterations, which a process can report to another one."""

import math
import operator
from collections.abc import Sequence
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class IterationStatistics:
    """Number, mean and spread of iteration times, as sums that can be added and subtracted.

    Attributes:
        iterations: number of iterations.
        seconds: the sum of their times.
        squares: the sum of the squares of their times.
        samples: training samples that they used.
    """

    iterations: int = 0
    seconds: float = 0.0
    squares: float = 0.0
    samples: int = 0

    @classmethod
    def of(cls, times: Sequence[float], samples: int) -> "IterationStatistics":
        """Return the statistics of iterations that took these times, in seconds, for so many samples."""
        return cls(len(times), sum(times), sum(time**2 for time in times), samples)

    def __add__(self, other: "IterationStatistics") -> "IterationStatistics":
        """Return the statistics of these iterations and the others together."""
        return IterationStatistics(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, earlier: "IterationStatistics") -> "IterationStatistics":
        """Return the statistics of the iterations since an earlier report."""
        return IterationStatistics(*map(operator.sub, astuple(self), astuple(earlier)))

    @property
    def mean(self) -> float:
        """Mean seconds of an iteration."""
        return self.seconds / self.iterations

    @property
    def jitter(self) -> float:
        """Relative standard deviation of an iteration; 0 for a single one."""
        if self.iterations < 2:
            return 0.0
        variance = (self.squares - self.iterations * self.mean**2) / (self.iterations - 1)
        return math.sqrt(max(0.0, variance)) / self.mean

    @property
    def batch(self) -> float:
        """Mean number of samples of an iteration."""
        return self.samples / self.iterations
