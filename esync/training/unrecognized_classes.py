"""Warn of classes that the common model never recognizes, although workers have samples of them."""

from collections.abc import Sequence

import numpy as np

from ..runtime import progress
from ..runtime.errors import enumeration
from ..runtime.evaluation_result import RECALL
from .callbacks import Callback, Evaluated

#: Successive evaluations in which a class is not recognized at all that cause a warning.
EVALUATIONS = 5
#: The accuracy in them is at least this share of the way from guessing, 1 ÷ classes, to 1.
ABOVE_CHANCE = 0.25


class UnrecognizedClasses(Callback):
    """Warns once of each class whose recall has been 0 for long.

    That is in EVALUATIONS or more successive evaluations, in which the accuracy was well above that
    of guessing (ABOVE_CHANCE), while all workers together have used as many samples as there are
    in the training set. So the first evaluations of a run, which recognizes its classes one after
    the other, cause no warning.

    Args:
        names: names of the classes.
        labels: labels of the training samples.
        shares: indices of each worker's training samples.
    """

    def __init__(self, names: Sequence[str], labels: np.ndarray, shares: Sequence[np.ndarray]) -> None:
        self._names, self._samples = names, len(labels)
        held = [set(np.unique(labels[share]).tolist()) for share in shares]
        self._workers = len(shares)
        self._holders = [[rank for rank, classes in enumerate(held) if label in classes] for label in range(len(names))]
        self._missing: dict[int, tuple[int, int]] = {}  # class → evaluations without it, samples at the first
        self._warned: set[int] = set()

    def accuracy(self, evaluated: Evaluated) -> None:
        """Count the evaluations without a class."""
        due, chance = [], 1 / len(self._names)
        above_chance = evaluated.accuracy >= chance + ABOVE_CHANCE * (1 - chance)
        for label, name in enumerate(self._names):
            recognized = evaluated.parts.get(f"{RECALL}{name}") != 0
            if recognized or not above_chance or not self._holders[label]:
                self._missing.pop(label, None)
                continue
            count, since = self._missing.get(label, (0, evaluated.samples))
            self._missing[label] = count + 1, since
            if count + 1 >= EVALUATIONS and evaluated.samples - since >= self._samples and label not in self._warned:
                due.append(label)
        self._warned.update(due)
        if due:
            count = min(self._missing[label][0] for label in due)
            named = [f"{self._names[label]} (held by {self._held(self._holders[label])})" for label in due]
            progress.warn(
                f"no test sample of class {enumeration(named, 10)} has been recognized in the last {count} "
                f"evaluations, while the accuracy is {evaluated.accuracy:.3f}: iter-N.txt and report.html have the "
                "recall of each class"
            )

    def _held(self, holders: Sequence[int]) -> str:
        if len(holders) == self._workers:
            return "all workers" if self._workers > 1 else "the only worker"
        return f"worker{'s' * (len(holders) > 1)} {enumeration(holders, 5)}"
