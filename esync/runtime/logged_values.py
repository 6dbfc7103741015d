"""Named numbers that a training program logs: their names, and their means."""

import math
from collections.abc import Collection, Iterable

from .errors import ExpectedError
from .metric import TAKEN
from .output import is_label
from .phase_timer import GET_BATCH

#: Names of a round's own scalars, beside those that the program logs.
ROUND_TAGS = (
    "samples_per_second", "local_iterations", "wait_seconds", "transfer_seconds", "bytes_sent", "bytes_received",
)  # fmt: skip
#: Name of the loss that the built-in worker and the Estimator's handler log.
LOSS = "loss"
#: Name of the gradient noise scale, which the algorithms log; see `algorithms.gradient_noise`.
NOISE_SCALE = "gradient_noise_scale"
#: Most names of a program. The dashboard and `report.html` have a chart for each.
MAX_NAMES = 32


class LoggedValueError(ExpectedError, ValueError):
    """A program logs what is no number, or under a name that cannot be used; the message says which."""


def check_name(name: str, known: Collection[str], reserved: Collection[str]) -> None:
    """Check the name of a logged number.

    Args:
        name: the name.
        known: the names that the program has used before.
        reserved: further names that it must not have, such as that of the run's metric.

    Raises:
        LoggedValueError: it cannot be used.
    """
    if not name.isidentifier() or not is_label(name):
        raise LoggedValueError(f"trainer.log: {name!r} is no name: write it like a Python variable, such as train_loss")
    if name in (*reserved, *TAKEN, *ROUND_TAGS, GET_BATCH, NOISE_SCALE):
        raise LoggedValueError(f"trainer.log: the logs have another value named {name!r}: choose another name")
    if name not in known and len(known) >= MAX_NAMES:
        raise LoggedValueError(
            f"trainer.log: {name!r} is name {MAX_NAMES + 1}, but there can be {MAX_NAMES}: a name stands for a "
            "curve over the whole run"
        )


def weighted_mean(values: Iterable[tuple[float | None, float]]) -> float | None:
    """Return the mean of pairs of a value and its weight; those without a value or a weight are left out."""
    pairs = [(value, weight) for value, weight in values if value is not None and weight > 0]
    total = math.fsum(weight for _, weight in pairs)
    return math.fsum(value * (weight / total) for value, weight in pairs) if pairs else None
