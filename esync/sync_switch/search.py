"""The offline timing policy: a binary search for the smallest share of BSP that costs no accuracy.

Pure decisions; `trials` makes the runs. A reconstruction of the timing policy of Sync-Switch (Li,
Mangoubi, Xu, Guo, ICDCS 2021): the authors' repository has the measurements of its trials, at 50,
25, 12.5 and 6.25 %, but not the search itself; the rule of acceptance and how diverged runs count
were chosen here. Between all ASP, taken to be not good enough, and all BSP, known to be good, half
of what is left is tried next, and whether it is accepted decides the half that is left then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev


@dataclass(frozen=True)
class TrialOutcome:
    """Result of one trial run.

    Attributes:
        accuracy: of its last evaluation; 0 where it has diverged.
        seconds: that the training took.
        diverged: whether its loss became infinite or no number.
    """

    accuracy: float
    seconds: float
    diverged: bool = False


@dataclass(frozen=True)
class Measured:
    """Runs of one share of BSP."""

    share: float
    outcomes: tuple[TrialOutcome, ...]

    @property
    def accuracy(self) -> float:
        """Return the mean accuracy; diverged runs count with 0."""
        return fmean(each.accuracy for each in self.outcomes)

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the population."""
        return pstdev(each.accuracy for each in self.outcomes)

    @property
    def seconds(self) -> float:
        """Mean of the runs that went to their end; of all where none did."""
        whole = [each.seconds for each in self.outcomes if not each.diverged]
        return fmean(whole or [each.seconds for each in self.outcomes])

    @property
    def spent(self) -> float:
        """Seconds of all of them together."""
        return sum(each.seconds for each in self.outcomes)

    @property
    def diverged(self) -> int:
        """How many of them have diverged."""
        return sum(each.diverged for each in self.outcomes)


@dataclass(frozen=True)
class Found:
    """Result of a search.

    Attributes:
        share: the smallest share that was accepted; 1: stay with BSP.
        target: accuracy that BSP reaches.
        beta: by how much less is accepted.
        tried: in the order of the search.
        bsp: the runs that the target is the mean of; None where the target was known.
    """

    share: float
    target: float
    beta: float
    tried: Sequence[Measured]
    bsp: Measured | None

    def accepted(self, measured: Measured) -> bool:
        """Return whether it is as accurate as BSP, but for beta."""
        return accepted(measured, self.target, self.beta)

    @property
    def chosen(self) -> Measured | None:
        """The runs of the share that was found; None where it is BSP and nobody has run that."""
        return next((each for each in self.tried if each.share == self.share), self.bsp)

    @property
    def speedup(self) -> float | None:
        """BSP's time ÷ that of the share that was found."""
        if self.bsp is None or self.chosen is None or not self.chosen.seconds:
            return None
        return self.bsp.seconds / self.chosen.seconds

    @property
    def cost(self) -> float | None:
        """Of all trials, in runs of BSP."""
        if self.bsp is None or not self.bsp.seconds:
            return None
        return (sum(each.spent for each in self.tried) + self.bsp.spent) / self.bsp.seconds

    @property
    def break_even(self) -> float | None:
        """How often the job has to recur until the trials have paid; None where they never do."""
        if self.cost is None or self.speedup is None or self.speedup <= 1:
            return None
        return self.cost / (1 - 1 / self.speedup)


def accepted(measured: Measured, target: float, beta: float) -> bool:
    """One-sided: more accurate than BSP is fine."""
    return target - measured.accuracy <= beta


def search(
    measure: Callable[[float], Measured], beta: float, settings: int, target: float | None = None, quantum: float = 0.0
) -> Found:
    """Search for the smallest share of BSP that is accepted.

    Args:
        measure: runs one share of BSP as often as is wanted.
        beta: by how much less accuracy is accepted.
        settings: how many shares are tried; 4 gives 50, 25, 12.5 and 6.25 % where all are accepted.
        target: accuracy of BSP; None: runs of BSP tell.
        quantum: share that a single round of BSP makes up: below that nothing is told apart.
    """
    bsp = measure(1.0) if target is None else None
    goal = target if bsp is None else bsp.accuracy
    if goal is None:
        raise ValueError("the accuracy to reach is neither given nor measured")
    low, high = 0.0, 1.0
    tried: list[Measured] = []
    while len(tried) < settings and high - low > quantum:
        tried.append(measure((low + high) / 2))
        if accepted(tried[-1], goal, beta):
            high = tried[-1].share
        else:
            low = tried[-1].share
    return Found(high, goal, beta, tuple(tried), bsp)
