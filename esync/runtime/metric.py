"""The metric of evaluations: the test accuracy, or one of the user's own.

In logs, summaries and the state server, the field of the value has the published name `accuracy` for
any metric; another field names the metric.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from .output import LABEL_LENGTH, is_label

Goal = Literal["max", "min"]
ACCURACY = "accuracy"
#: Name of an evaluation's parts in a round's log file.
PARTS = "parts"
#: Key of its duration, in seconds.
EVALUATION_TIME = "evaluation_time"
#: Largest absolute value of a metric: a larger one counts as infinite, so that axes are finite.
LARGEST = 1e100
#: Names of a round's other values in its log file.
TAKEN = (
    "num_iters", "round", "time", "num_samples", "iteration_times", "step_time_overrun", "total_time", EVALUATION_TIME,
    "bytes_sent", "bytes_received", "wait", "transfer", "logged", PARTS,
)  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """A metric of evaluations.

    Attributes:
        name: for logs, tables and figures. `accuracy` is the share of the test samples that are
            classified correctly, from 0 to 1; any other metric may have any finite value.
        goal: "max" if high values are good, "min" if low ones are.

    Raises:
        ValueError: the name or the goal is invalid.
    """

    name: str = ACCURACY
    goal: Goal = "max"

    def __post_init__(self) -> None:
        description = f"metric {(self.name, self.goal)!r}"
        if not isinstance(self.name, str) or not is_label(self.name):
            raise ValueError(f"{description}: expected a name of up to {LABEL_LENGTH} printable characters in one line")
        if self.goal not in get_args(Goal):
            raise ValueError(f'{description}: expected "max" if high values are good, or "min" if low ones are')
        if self.name in TAKEN:
            raise ValueError(f"{description}: each round's log has another value of that name; choose another one")
        if self.is_accuracy and self.goal != "max":
            raise ValueError(f'{description}: accuracy is a share that should be high ("max"); choose another name')

    @property
    def is_accuracy(self) -> bool:
        """Whether the metric is the test accuracy, a share from 0 to 1."""
        return self.name == ACCURACY

    @property
    def label(self) -> str:
        """The metric's name in sentences and tables."""
        return "test accuracy" if self.is_accuracy else self.name

    @property
    def title(self) -> str:
        """The metric's name at the beginning of a line."""
        return self.label[0].upper() + self.label[1:]

    def reached(self, value: float, target: float) -> bool:
        """Return whether a value is valid, and at least as good as the target."""
        return self.possible(value) and (value >= target if self.goal == "max" else value <= target)

    def best(self, values: Sequence[float]) -> float | None:
        """Return the best of some values; None if there are none."""
        return (max if self.goal == "max" else min)(values, default=None)

    def possible(self, value: float) -> bool:
        """Return whether the metric can have this value: 0 to 1 for the accuracy, otherwise any finite value."""
        return 0 <= value <= 1 if self.is_accuracy else -LARGEST <= value <= LARGEST

    def expected(self) -> str:
        """Return in words what `possible` accepts."""
        return "0 to 1" if self.is_accuracy else "a finite number"

    def text(self, value: float, digits: int = 3) -> str:
        """Format a value: an accuracy with `digits` decimals, others with as many significant digits."""
        return f"{value:.{digits}f}" if self.is_accuracy else f"{value:.{digits + 1}g}"


def finite(value: float) -> float | None:
    """Return the value, or None if it is not finite, or so large that it counts as infinite."""
    return value if -LARGEST <= value <= LARGEST else None


#: The default metric.
TEST_ACCURACY = Metric()
