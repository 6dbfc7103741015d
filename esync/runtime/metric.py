"""What evaluations compute: the test accuracy, or a metric of the user's own.

Logs, summaries and the state server keep the value under the published name `accuracy` where a
field's name is fixed, and say beside it which metric it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from .output import LABEL_LENGTH, is_label

Goal = Literal["max", "min"]
ACCURACY = "accuracy"
#: Largest absolute value of a metric: a larger one counts as infinite, so that axes are finite.
LARGEST = 1e100
#: Names of a round's other values in its log file.
_TAKEN = (
    "num_iters", "time", "num_samples", "iteration_times", "step_time_overrun", "total_time", "accuracy_time",
    "bytes_sent", "bytes_received", "wait", "transfer",
)  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """What evaluations compute.

    Attributes:
        name: for logs, tables and figures. `accuracy` is the share of the test samples that are
            classified correctly, from 0 to 1; any other metric may have any finite value.
        goal: "max" if high values are good, "min" if low ones are.

    Raises:
        ValueError: the name or the goal cannot be used.
    """

    name: str = ACCURACY
    goal: Goal = "max"

    def __post_init__(self) -> None:
        given = f"metric {(self.name, self.goal)!r}"
        if not isinstance(self.name, str) or not is_label(self.name):
            raise ValueError(f"{given}: expected a name of up to {LABEL_LENGTH} printable characters in one line")
        if self.goal not in get_args(Goal):
            raise ValueError(f'{given}: expected "max" if high values are good, or "min" if low ones are')
        if self.name in _TAKEN:
            raise ValueError(f"{given}: each round's log has another value of that name; choose another one")
        if self.is_accuracy and self.goal != "max":
            raise ValueError(f'{given}: accuracy is a share that should be high ("max"); choose another name')

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
        """Return whether a value is possible, and at least as good as the target."""
        return self.possible(value) and (value >= target if self.goal == "max" else value <= target)

    def best(self, values: Sequence[float]) -> float | None:
        """Return the best of some values; None if there are none."""
        return (max if self.goal == "max" else min)(values, default=None)

    def possible(self, value: float) -> bool:
        """Return whether the metric can have this value: 0 to 1 if accuracy, else finite."""
        return 0 <= value <= 1 if self.is_accuracy else -LARGEST <= value <= LARGEST

    def expected(self) -> str:
        """Return in words what `possible` accepts."""
        return "0 to 1" if self.is_accuracy else "a finite number"

    def text(self, value: float, digits: int = 3) -> str:
        """Return a value as text: an accuracy with `digits` decimals, any other one as long."""
        return f"{value:.{digits}f}" if self.is_accuracy else f"{value:.{digits + 1}g}"


#: The metric where none is named.
TEST_ACCURACY = Metric()
