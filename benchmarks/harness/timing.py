"""Compare ways of doing the same: they take turns, and medians count.

So a busy machine is busy for all of them.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def in_turns(
    ways: Mapping[str, Callable[[], T]], turns: int, warm_up: int = 0, tell: str | None = None
) -> dict[str, list[T]]:
    """Go each way once in every turn; return the results without the first `warm_up` turns.

    With `tell`, a line that begins with that text is printed before each.
    """
    values: dict[str, list[T]] = {name: [] for name in ways}
    for turn in range(warm_up + turns):
        for name, way in ways.items():
            if tell is not None:
                print(f"{tell}turn {turn + 1} of {warm_up + turns}: {name} …", flush=True)
            result = way()
            if turn >= warm_up:
                values[name].append(result)
    return values


def medians(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of each way."""
    return {name: statistics.median(series) for name, series in values.items()}


def seconds_of(call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that a call takes by a clock."""
    begun = clock()
    call()
    return clock() - begun


def median_of(call: Callable[[], Any], repeats: int) -> float:
    """Return the median seconds of that many calls, after a first one that does not count."""
    return statistics.median([seconds_of(call) for _ in range(repeats + 1)][1:])
