"""The offline timing policy: a binary search for the smallest share of BSP that suffices.

This module only chooses the shares; `trials` runs them. It reconstructs the timing policy of Sync-Switch
(Li, Mangoubi, Xu, Guo, ICDCS 2021). The authors' repository contains the measurements of their trials, at
50, 25, 12.5 and 6.25 %, but not the search itself; the criterion of acceptance and the treatment of
diverged runs are our choices. The search starts with the interval from ASP alone, which is assumed to be
insufficient, to BSP alone, which suffices. It tries the middle of the interval, and continues with one
half.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev


@dataclass(frozen=True)
class TrialOutcome:
    """Result of one trial run.

    Attributes:
        accuracy: accuracy of its last evaluation; 0 if it has diverged.
        seconds: duration of the training in seconds.
        diverged: whether its loss became infinite or NaN.
    """

    accuracy: float
    seconds: float
    diverged: bool = False


@dataclass(frozen=True)
class Measured:
    """The runs of one share of BSP."""

    share: float
    outcomes: tuple[TrialOutcome, ...]

    @property
    def accuracy(self) -> float:
        """Mean accuracy, with 0 for diverged runs."""
        return fmean(outcome.accuracy for outcome in self.outcomes)

    @property
    def deviation(self) -> float:
        """Standard deviation of the accuracy (of the population)."""
        return pstdev(outcome.accuracy for outcome in self.outcomes)

    @property
    def seconds(self) -> float:
        """Mean seconds of the completed runs, or of all runs if none was completed."""
        finished = [outcome.seconds for outcome in self.outcomes if not outcome.diverged]
        return fmean(finished or [outcome.seconds for outcome in self.outcomes])

    @property
    def spent(self) -> float:
        """Seconds of all runs together."""
        return sum(outcome.seconds for outcome in self.outcomes)

    @property
    def diverged(self) -> int:
        """Number of runs that have diverged."""
        return sum(outcome.diverged for outcome in self.outcomes)


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Attributes:
        share: the smallest share that was accepted; 1 means to stay with BSP.
        target: accuracy that BSP reaches.
        beta: acceptable loss of accuracy.
        tried: the tried shares, in the order of the search.
        bsp: the runs of BSP whose mean is the target; None if the target was given.
    """

    share: float
    target: float
    beta: float
    tried: Sequence[Measured]
    bsp: Measured | None

    def accepted(self, measured: Measured) -> bool:
        """Return whether a share is as accurate as BSP, except for beta."""
        return accepted(measured, self.target, self.beta)

    @property
    def chosen(self) -> Measured | None:
        """The runs of the accepted share; None if it is BSP and was not run."""
        return next((measured for measured in self.tried if measured.share == self.share), self.bsp)

    @property
    def speedup(self) -> float | None:
        """BSP's time ÷ that of the accepted share; None if unknown."""
        if self.bsp is None or self.chosen is None or not self.chosen.seconds:
            return None
        return self.bsp.seconds / self.chosen.seconds

    @property
    def cost(self) -> float | None:
        """Time of all trials ÷ that of a run of BSP; None if unknown."""
        if self.bsp is None or not self.bsp.seconds:
            return None
        return (sum(measured.spent for measured in self.tried) + self.bsp.spent) / self.bsp.seconds

    @property
    def break_even(self) -> float | None:
        """Number of runs of the job after which the trials pay off; None if they never do."""
        if self.cost is None or self.speedup is None or self.speedup <= 1:
            return None
        return self.cost / (1 - 1 / self.speedup)


def accepted(measured: Measured, target: float, beta: float) -> bool:
    """Return whether a share's accuracy is at least target − beta."""
    return target - measured.accuracy <= beta


def search(
    measure: Callable[[float], Measured], beta: float, settings: int, target: float | None = None
) -> SearchResult:
    """Search for the smallest share of BSP that is accepted.

    Args:
        measure: returns the runs of a share of BSP.
        beta: acceptable loss of accuracy.
        settings: number of shares to try; 4 gives 50, 25, 12.5 and 6.25 % if all are accepted.
        target: accuracy of BSP; None measures it by runs of BSP.
    """
    bsp = measure(1.0) if target is None else None
    goal = target if bsp is None else bsp.accuracy
    if goal is None:
        raise ValueError("the accuracy to reach is neither given nor measured")
    low, high = 0.0, 1.0
    tried: list[Measured] = []
    while len(tried) < settings:
        tried.append(measure((low + high) / 2))
        if accepted(tried[-1], goal, beta):
            high = tried[-1].share
        else:
            low = tried[-1].share
    return SearchResult(high, goal, beta, tuple(tried), bsp)
