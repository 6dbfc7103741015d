"""Warn of classes that the common model never recognizes, although workers have samples of them."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..runtime import progress
from ..runtime.errors import enumeration
from ..runtime.evaluation_result import RECALL, recalls
from .callbacks import Callback, Evaluated

#: Successive evaluations in which a class is not recognized at all that cause a warning.
EVALUATIONS = 5
#: The mean recall in them is at least this share of the way from guessing, 1 ÷ classes, to 1.
ABOVE_CHANCE = 0.25


class UnrecognizedClasses(Callback):
    """Warns once of each class whose recall has been 0 for long.

    That is in EVALUATIONS or more successive evaluations, in which the mean recall was well above that
    of guessing (ABOVE_CHANCE), while all workers together have used as many samples as there are
    in the training set. So the first evaluations of a run, which recognizes its classes one after
    the other, cause no warning. Of two classes the mean recall cannot be above that of guessing
    while one is not recognized, and does not count.

    Args:
        samples: returns the number of training samples of all workers; 0 if it is unknown.

    Attributes:
        samples: as given; it can be set later.
        holders: name of a class → ranks of the workers that have samples of it. Classes that nobody
            holds cause no warning. None: all classes count, and nobody is named.
        workers: number of workers.
    """

    def __init__(self, samples: Callable[[], int] = lambda: 0) -> None:
        self.samples = samples
        self.holders: Mapping[str, Sequence[int]] | None = None
        self.workers = 1
        self._missing: dict[str, tuple[int, int]] = {}  # class → evaluations without it, samples at the first
        self._warned: set[str] = set()

    def hold(self, names: Sequence[str], labels: np.ndarray, shares: Sequence[np.ndarray]) -> None:
        """Note which workers hold which classes, and the number of training samples.

        Args:
            names: names of the classes.
            labels: labels of the training samples.
            shares: indices of each worker's training samples.
        """
        held = [set(np.unique(labels[share]).tolist()) for share in shares]
        self.samples, self.workers = lambda: len(labels), len(shares)
        self.holders = {
            name: [rank for rank, classes in enumerate(held) if label in classes] for label, name in enumerate(names)
        }

    def accuracy(self, evaluated: Evaluated) -> None:
        """Count the evaluations without a class."""
        by_class = {name.removeprefix(RECALL): recall for name, recall in recalls(evaluated.parts).items()}
        # An evaluation that says nothing of a class does not say that the class is still not recognized.
        self._missing = {name: missing for name, missing in self._missing.items() if name in by_class}
        if not by_class:
            return
        chance, mean = 1 / len(by_class), sum(by_class.values()) / len(by_class)
        above_chance = (len(by_class) == 2 and mean > 0) or mean >= chance + ABOVE_CHANCE * (1 - chance)
        due: list[str] = []
        for name, recall in by_class.items():
            if recall or not above_chance or (self.holders is not None and not self.holders.get(name)):
                self._missing.pop(name, None)
                continue
            count, since = self._missing.get(name, (0, evaluated.samples))
            self._missing[name] = count + 1, since
            complete = evaluated.samples - since >= self.samples()
            if count + 1 >= EVALUATIONS and complete and name not in self._warned:
                due.append(name)
        self._warned.update(due)
        if due:
            count = min(self._missing[name][0] for name in due)
            described = enumeration([self._described(name) for name in due], 10)
            progress.warn(
                f"no test sample of class {described} has been recognized in the last {count} evaluations, while the "
                f"mean recall is {mean:.3f}: iter-N.txt and report.html have the recall of each class"
            )

    def _described(self, name: str) -> str:
        return name if self.holders is None else f"{name} (held by {self._held(self.holders[name])})"

    def _held(self, holders: Sequence[int]) -> str:
        if len(holders) == self.workers:
            return "all workers" if self.workers > 1 else "the only worker"
        return f"worker{'s' * (len(holders) > 1)} {enumeration(holders, 5)}"
