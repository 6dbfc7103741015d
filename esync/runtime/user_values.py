"""Values that a user's program hands over: numbers of whatever library, and how messages show them."""

import numbers
from typing import Any


def single_number(value: Any) -> Any:
    """Return a number, or that of an array with one element, as Python's own; None for anything else."""
    for name in ("asnumpy", "item"):  # NDArray; then NumPy's, and whatever else has that method
        if hasattr(value, name):
            try:
                value = getattr(value, name)()
            except (TypeError, ValueError, RuntimeError):  # more than one element
                return None
    return value if isinstance(value, numbers.Number) and not isinstance(value, complex) else None


def one_line(value: Any) -> str:
    """Return a value as Python writes it, in one line, which arrays are not."""
    return " ".join(repr(value).split())
