"""Numbers of samples: the arguments of `step`, and the size of a batch."""

import math
from typing import Any

from ..runtime.errors import ExpectedError
from ..runtime.user_values import one_line, single_number


class BatchSizeError(ExpectedError, ValueError):
    """A batch size or a number of samples cannot be used, by `Trainer.step` or for a batch."""


def divisor_and_samples(batch_size: Any, samples: Any = None) -> tuple[float, int]:
    """Return the divisor of a batch's gradients, and the number of its samples.

    Args:
        batch_size: the divisor; a number of Python, or a single one of NumPy or MXNet.
        samples: likewise; None: as many as the divisor is.

    Raises:
        BatchSizeError: the divisor is no positive number, or the samples are no positive whole one.
    """
    divisor = _number(batch_size)
    if not 0 < divisor < math.inf:
        raise BatchSizeError(
            f"step was given {one_line(batch_size)}, but gradients are divided by that number: it should be above 0, "
            "usually the number of samples of this worker's batch, step(len(batch))"
        )
    count = divisor if samples is None else _number(samples)
    if count < 1 or count != count // 1:
        argument = one_line(batch_size) if samples is None else f"samples={one_line(samples)}"
        raise BatchSizeError(
            f"step was given {argument}, but samples are counted by it, for limits and epochs: it should be a whole "
            f"number of 1 or more; where gradients are divided by another one, give both: step({divisor:g}, "
            "samples=len(batch))"
        )
    return divisor, int(count)


def whole_batch_size(batch_size: Any, receiver: str) -> int:
    """Return the size of a batch as a number of Python.

    Args:
        batch_size: a number of Python, or a single one of NumPy or MXNet.
        receiver: what was given it, for the message.

    Raises:
        BatchSizeError: it is no whole number of 1 or more.
    """
    size = _number(batch_size)
    if not 1 <= size < math.inf or size != size // 1:
        raise BatchSizeError(
            f"{receiver} was given {one_line(batch_size)}, but a batch has a whole number of samples, 1 or more; as a "
            "tenth of this worker's data, which may be fewer than ten, it would be max(1, len(part) // 10)"
        )
    return int(size)


#: What a program with a mean loss might have overlooked.
ONE_SAMPLE = (
    "step(1) counts one sample, by which limits and epochs go: where the loss is the mean of a larger batch, write "
    "step(1, samples=len(batch)) (and samples=1 where it is not, to be spared this line)"
)


def _number(value: Any) -> float:
    """Return a number as Python's own; NaN for anything else."""
    if type(value) not in (int, float):
        value = single_number(value)
    return math.nan if value is None or isinstance(value, bool) else value
