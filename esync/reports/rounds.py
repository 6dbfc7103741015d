"""Read a device's `iter-N.txt` files, each of which holds one communication round.

The content of a file is checked completely. An invalid file (empty, truncated, or of another program)
raises `BadRound` with a category and a reason, so that the caller can report and skip it.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..runtime.metric import EVALUATION_TIME, PARTS, TEST_ACCURACY, Metric, finite
from ..runtime.phase_timer import COMPUTE, GLOBAL_AGGREGATE, GLOBAL_UPDATE, LOCAL_UPDATE, LOGGED
from .metrics import MAX_NUMBER

Category = Literal["missing", "empty", "truncated", "foreign"]

#: Names of round files, without leading zeros: iter-7.txt and iter-07.txt would be the same round.
ROUND_FILE = re.compile(r"iter-([1-9][0-9]*)\.txt")

#: Phases with which a round ends. A local run has no exchange and ends with its own update.
AGGREGATION = (GLOBAL_UPDATE, GLOBAL_AGGREGATE)


class BadRound(Exception):  # noqa: N818  (it is an outcome that every caller expects, not a failure of the program)
    """Raised when a file does not hold a round."""

    def __init__(self, category: Category, reason: str) -> None:
        super().__init__(reason)
        self.category = category
        self.reason = reason


@dataclass(slots=True)
class LoggedRound:
    """Content of a round file; times in seconds.

    None means that the log, for instance a published one, does not have a value.

    Attributes:
        number: number of the communication round, from 1; in asynchronous modes of this device's
            exchange.
        samples: number of samples that the device used in this round.
        entries: number of entries in "time": the local iterations, and in mode esync the exchange.
        iterations: number of entries that computed a gradient.
        total_time: time from the start of the run to the end of this round.
        aggregate: duration of the exchange, including waits; 0 in a local run.
        computing: time of "forward and backward" and "local update" in all iterations, without
            loading data, queries to the state server, exchanges, waits and evaluations.
        accuracy: test accuracy (0 to 1), or value of the run's own metric, of the weights at the
            end of this round.
        evaluation_time: duration of that evaluation.
        bytes_sent, bytes_received: bytes transmitted in this round.
        wait: time from this device's commit to the last one.
        transfer: the rest of the exchange.
        overruns: number of padded iterations that took longer than their step time.
        run_round: asynchronous modes: rounds of the run by then, commits ÷ workers.
        logged: means of what the program has logged, by name; None for one that was not finite.
        parts: further results of the evaluation, by name, such as recall/3.
    """

    number: int
    samples: int
    entries: int
    iterations: int
    total_time: float
    aggregate: float
    computing: float
    accuracy: float | None
    evaluation_time: float | None
    bytes_sent: int | None
    bytes_received: int | None
    wait: float | None
    transfer: float | None
    overruns: int | None
    logged: dict[str, float | None]
    run_round: int | None = None
    parts: dict[str, float | None] = field(default_factory=dict)


def read_round(path: Path, number: int, metric: Metric = TEST_ACCURACY) -> LoggedRound:
    """Read and check the file of round `number`; `metric` is the one that its run evaluates.

    Raises:
        BadRound: the file is missing, empty, truncated, or does not hold that round.
    """
    return _check(_load(path), number, metric)


def _load(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        BadRound: the file does not contain a JSON object.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise BadRound("missing", "it disappeared while the folder was read") from None
    except OSError as error:
        raise BadRound("foreign", f"cannot be read: {error.strerror}") from None
    if not content.strip(b" \t\r\n\0"):
        raise BadRound("empty", "no content")
    try:
        log = json.loads(content)
    except json.JSONDecodeError as error:
        if content.lstrip().startswith(b"{"):
            raise BadRound("truncated", f"the JSON ends or breaks at character {error.pos}") from None
        raise BadRound("foreign", "not a JSON object") from None
    except (ValueError, RecursionError):  # also of numbers with thousands of digits, and thousands of brackets
        raise BadRound("foreign", "not a JSON object") from None
    if not isinstance(log, dict):
        raise BadRound("foreign", "not a JSON object")
    return log


def _check(log: dict[str, Any], number: int, metric: Metric) -> LoggedRound:
    """Return the content of a round file as a `LoggedRound`."""
    if log.get("num_iters") != number:
        raise BadRound("foreign", f"num_iters is {log.get('num_iters')!r}, the file name says {number}")
    time = log.get("time")
    if not isinstance(time, dict) or not time:
        raise BadRound("foreign", 'no object "time" with the phases of each iteration')
    iterations = 0
    computing = 0.0
    try:
        last = time[max(time, key=int)]
        for phases in time.values():
            iterations += COMPUTE in phases
            computing += phases.get(COMPUTE, 0.0) + phases.get(LOCAL_UPDATE, 0.0)
        exchanges = [last[phase] for phase in AGGREGATION if phase in last]
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise BadRound("foreign", '"time" does not map 0, 1, … to phases and their seconds') from None
    if not exchanges and LOCAL_UPDATE not in last:
        raise BadRound("foreign", "its last iteration ends neither in an exchange nor in a local update")
    return LoggedRound(
        number=number,
        samples=int(_required("num_samples", log)),
        entries=len(time),
        iterations=iterations,
        total_time=_required("total_time", log),
        aggregate=_number("the time of the exchange", exchanges[0] if exchanges else None) or 0.0,
        computing=_number("the time of computing", computing) or 0.0,
        accuracy=_evaluated(metric, log.get(metric.name)),
        evaluation_time=_number(EVALUATION_TIME, log.get(EVALUATION_TIME)),
        bytes_sent=_count("bytes_sent", log),
        bytes_received=_count("bytes_received", log),
        wait=_number("wait", log.get("wait")),
        transfer=_number("transfer", log.get("transfer")),
        overruns=_count("step_time_overrun", log),
        run_round=_count("round", log),
        logged=_named(LOGGED, log),
        parts=_named(PARTS, log),
    )


def _evaluated(metric: Metric, value: object) -> float | None:
    """Return the value of the metric; None if there is none, or if the loss has diverged."""
    if value is None:
        return None
    if not isinstance(value, int | float) or (metric.is_accuracy and not metric.possible(value)):
        raise BadRound("foreign", f"{metric.name} is {value!r:.40}, expected {metric.expected()}")
    return value if metric.possible(value) else None


def _named(key: str, log: dict[str, Any]) -> dict[str, float | None]:
    """Return the named numbers in a field, checked; {} if it is missing."""
    numbers = log.get(key, {})
    if not isinstance(numbers, dict) or not all(
        number is None or isinstance(number, int | float) for number in numbers.values()
    ):
        raise BadRound("foreign", f"{key} is {numbers!r:.40}, expected names and numbers")
    return {name: None if number is None else finite(number) for name, number in numbers.items()}


def _number(name: str, value: object) -> float | None:
    """Return a number from 0 to MAX_NUMBER, or None if there is none."""
    if value is None:
        return None
    if not isinstance(value, int | float) or not 0 <= value <= MAX_NUMBER:
        raise BadRound("foreign", f"{name} is {value!r:.40}, expected a number from 0 to {MAX_NUMBER:g}")
    return value


def _required(name: str, log: dict[str, Any]) -> float:
    value = _number(name, log.get(name))
    if value is None:
        raise BadRound("foreign", f"no {name}")
    return value


def _count(name: str, log: dict[str, Any]) -> int | None:
    value = _number(name, log.get(name))
    return None if value is None else int(value)
