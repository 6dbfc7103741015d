"""The filter through which the published implementation of ESync draws its accuracy curves.

Its drawing program (drawer.py) takes the accuracies and times of every n-th round, beginning with
the first, puts the point (0, 0.1) before them, and replaces each value by the mean of the last
points up to it, padded with 0.1 at the beginning. Data are i.i.d. unless the name of the mode's
folder ends in -niid: the program calls the same function with other numbers for those summaries.
Each curve therefore shows the mean of a window of 50 rounds, by class of 300, and begins at 0.1
whatever the first evaluations were.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import replace
from statistics import fmean

from .metrics_table import RunFigures
from .modes import STANDALONE

#: Rounds between two points, and points in a mean: data that are i.i.d., data sorted by class.
IID, NON_IID = (5, 10), (10, 30)
CHANCE = 0.1  # accuracy at which the published curves begin: that of guesses among ten classes


def can_be_smoothed(run: RunFigures) -> bool:
    """Return whether the filter applies to a run.

    It does not apply to other metrics than accuracy, nor to sequential SGD, of which the published
    figures show the final accuracy only.
    """
    return run.metric.is_accuracy and run.mode.name != STANDALONE and bool(run.times)


def smoothed(run: RunFigures) -> RunFigures:
    """Return the run with its accuracy curve as the published implementation draws it.

    Published runs were evaluated in every round; other runs may be evaluated less often. Therefore
    "every n-th round" means rounds 1, n + 1, 2·n + 1 and so on of the device that evaluated, each at
    the time of its end, with the accuracy of the latest evaluation up to that round. The window then
    covers as many rounds as in the published figures. Rounds before the first evaluation, and rounds
    missing in the log, are left out.

    A run to which the filter does not apply is returned unchanged.
    """
    if not can_be_smoothed(run):
        return run
    step, points = _filter(run)
    window = deque([CHANCE] * points, maxlen=points)
    curve = [(0.0, CHANCE)]
    for number, seconds in run.round_ends:
        evaluated = bisect_right(run.accuracy_rounds, number)
        if (number - 1) % step == 0 and evaluated:
            window.append(run.accuracies[evaluated - 1])
            curve.append((seconds, fmean(window)))
    times, accuracies = zip(*curve, strict=True)
    return replace(run, times=times, accuracies=accuracies)


def window(run: RunFigures) -> int:
    """Return the number of rounds over which the filter takes the mean of a run's accuracies."""
    step, points = _filter(run)
    return step * points


def window_is_filled(run: RunFigures) -> bool:
    """Return whether the last mean of a smoothed run contains evaluations only, and no padding."""
    _, points = _filter(run)
    return len(run.accuracies) > points  # the first one is the point (0, 0.1)


def _filter(run: RunFigures) -> tuple[int, int]:
    """Return the rounds between two points, and the points in a mean."""
    return IID if run.mode.iid else NON_IID
