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
CHANCE = 0.1  # accuracy with which the published curves begin: ten classes at random


def can_be_smoothed(run: RunFigures) -> bool:
    """Return whether the filter applies to a run.

    It begins at the accuracy of guesses, which runs with a metric of their own do not have. Of
    sequential SGD the published figures show the final accuracy only.
    """
    return run.metric.is_accuracy and run.mode.name != STANDALONE and bool(run.times)


def smoothed(run: RunFigures) -> RunFigures:
    """Return the run with its accuracy curve as the published implementation draws it.

    Published runs were evaluated in every round, so that every n-th round is every n-th value.
    Here, a run may have been evaluated in some rounds only, and "every n-th round" goes by the
    round's number: rounds 1, n + 1, 2·n + 1 and so on of the device that evaluated, each at the
    time at which it ended, with the accuracy of the latest evaluation up to that round. So the
    window covers as many rounds as in the published figures, however often a run was evaluated.
    Rounds before the first evaluation have no accuracy and are left out, as are rounds missing in
    the log.

    A run to which the filter does not apply is returned as it is.
    """
    if not can_be_smoothed(run):
        return run
    every, points = _filter(run)
    window = deque([CHANCE] * points, maxlen=points)
    curve = [(0.0, CHANCE)]
    for number, seconds in run.round_ends:
        evaluated = bisect_right(run.accuracy_rounds, number)
        if (number - 1) % every == 0 and evaluated:
            window.append(run.accuracies[evaluated - 1])
            curve.append((seconds, fmean(window)))
    times, accuracies = zip(*curve, strict=True)
    return replace(run, times=times, accuracies=accuracies)


def window(run: RunFigures) -> int:
    """Return the number of rounds over which the filter takes the mean of a run's accuracies."""
    every, points = _filter(run)
    return every * points


def window_is_filled(run: RunFigures) -> bool:
    """Return whether a smoothed run is long enough for its last mean to hold evaluations only.

    Otherwise that mean still contains the padding, and the curve ends below all of its evaluations.
    """
    _, points = _filter(run)
    return len(run.accuracies) > points  # the first one is the point (0, 0.1)


def _filter(run: RunFigures) -> tuple[int, int]:
    """Return the rounds between two points, and the points in a mean."""
    return IID if run.mode.iid else NON_IID
