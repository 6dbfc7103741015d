"""Values passed by a user's program: numbers of any library, and their form in messages."""

import numbers
from typing import Any

import numpy as np


def single_number(value: Any) -> Any:
    """Convert a number, or an array with one element, to a number of Python; return None for other values."""
    if isinstance(value, np.ma.MaskedArray) and not value.count():
        return None  # a missing value, of which item() makes 0
    for name in ("asnumpy", "item"):  # of NDArray; of NumPy and other libraries
        if hasattr(value, name):
            try:
                value = getattr(value, name)()
            except (TypeError, ValueError, RuntimeError):  # more than one element
                return None
    return value if isinstance(value, numbers.Number) and not isinstance(value, complex) else None


def one_line(value: Any) -> str:
    """Return the repr of a value in one line, also for arrays."""
    return " ".join(repr(value).split())
