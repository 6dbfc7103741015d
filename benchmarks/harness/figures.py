"""The figures of a benchmark: their JSON file, which is replaced as a whole, and tables of them."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from esync.reports.estimates import estimate
from esync.runtime.errors import ExpectedError
from esync.runtime.files import write_atomically

from .thinning import thinned


def write_figures(path: Path | None, figures: Mapping[str, Any]) -> None:
    """Write the figures as thin JSON, a line for each key, unless `path` is None.

    Raises:
        OSError: the file cannot be written.
    """
    if path is not None:
        lines = (
            f"{json.dumps(name)}: {json.dumps(thinned(value), ensure_ascii=False, separators=(',', ':'))}"
            for name, value in figures.items()
        )
        write_atomically(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def write_table(path: Path, table: str) -> None:
    """Write a table, and print it.

    Raises:
        OSError: the file cannot be written.
    """
    write_atomically(path, table.encode())
    print(table)


def read_figures(path: Path | None) -> dict[str, Any]:
    """Return the figures in a file, or none if there is no file yet.

    Raises:
        ExpectedError: the file does not hold figures.
    """
    if path is None or not path.exists():
        return {}
    try:
        figures = json.loads(path.read_text())
    except ValueError as error:
        raise damaged(path, str(error)) from error
    if not isinstance(figures, dict):
        raise damaged(path, "it is not a JSON object")
    return figures


def damaged(path: Path, why: str) -> ExpectedError:
    """Return the error of a file that does not hold what it should."""
    return ExpectedError(f"{path} is damaged ({why}); move it away")


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half the width of its 95 % confidence interval.

    The latter is NaN for a single value.
    """
    estimated = estimate(values)
    if estimated is None:
        raise statistics.StatisticsError("an interval needs at least one value")
    return estimated.mean, math.nan if estimated.high is None else estimated.high - estimated.mean


def mean_of_last(result: Mapping[str, Any], share: float) -> float:
    """Return the mean of the evaluations in the last share of a simulation's time."""
    since = (1 - share) * result["seconds"]
    return statistics.fmean(accuracy for _, seconds, accuracy in result["accuracies"] if seconds >= since)


def time_to(result: Mapping[str, Any], target: float) -> float:
    """Return the seconds until a simulation's first evaluation with that accuracy; infinite if there is none."""
    return next((seconds for _, seconds, accuracy in result["accuracies"] if accuracy >= target), math.inf)


def mean_time(times: Iterable[float], longest: float) -> float:
    """Return the geometric mean of times to targets; one that was not reached counts twice the longest time."""
    return statistics.geometric_mean(min(seconds, 2 * longest) for seconds in times)


def mean_ratio(pairs: Iterable[tuple[float, float]]) -> str:
    """Return the geometric mean of ratios of times as text; "–" if there are none, or a target was not reached."""
    known = list(pairs)
    if not known or any(math.inf in pair for pair in known):
        return "–"
    return f"{statistics.geometric_mean(one / other for one, other in known):.2f}"


def spread_or_missed(times: Sequence[float], digits: int = 1) -> str:
    """Return the mean and the standard deviation of times as text, or how many did not reach their target."""
    missed = times.count(math.inf)
    return f"missed by {missed} of {len(times)}" if missed else spread_or_value(times, digits)


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown whose columns are not padded."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def spread(values: Sequence[float], digits: int) -> str:
    """Return the mean and the standard deviation as text."""
    return f"{statistics.fmean(values):.{digits}f} ± {standard_deviation(values):.{digits}f}"


def spread_or_value(values: Sequence[float], digits: int) -> str:
    """Return the same as `spread`; of a single value, the value alone."""
    return spread(values, digits) if len(values) > 1 else f"{values[0]:.{digits}f}"


def standard_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample, without the noise of its last digits; 0 for a single value."""
    return round(statistics.stdev(values), 12) if len(values) > 1 else 0.0
