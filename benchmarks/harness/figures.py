"""The figures of a benchmark as a JSON file, whole or not at all."""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from esync.runtime.files import write_atomically

#: Quantile 97.5 % of Student's t by degrees of freedom from 1.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


def write_figures(path: Path | None, figures: Any) -> None:
    """Write them, unless `path` is None. Raises OSError where the file cannot be written."""
    if path is not None:
        write_atomically(path, (json.dumps(figures, indent=2) + "\n").encode())


def read_figures(path: Path | None) -> dict[str, Any]:
    """Return the figures that a program goes on from: those of the file; none where there is no file yet."""
    figures: dict[str, Any] = json.loads(path.read_text()) if path is not None and path.exists() else {}
    return figures


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half the width of its 95 % confidence interval (NaN for a single value)."""
    mean, freedom = statistics.mean(values), len(values) - 1
    if freedom < 1:
        return mean, math.nan
    quantile = STUDENT[min(freedom, len(STUDENT)) - 1]
    return mean, quantile * statistics.stdev(values) / math.sqrt(len(values))
