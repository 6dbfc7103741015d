"""Read a device's `iter-N.txt` files; each holds one communication round.

Nothing in a file is taken on trust. What cannot be a round (empty, cut off, of another program)
raises `BadRound` with a category and a reason, so that the caller can name it, skip it and count
it.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..runtime.phase_timer import COMPUTE, GLOBAL_AGGREGATE, GLOBAL_UPDATE, LOCAL_UPDATE
from .metrics import MOST

Category = Literal["missing", "empty", "truncated", "foreign"]

#: No leading zeros: iter-7.txt and iter-07.txt would be two files of one round.
ROUND_FILE = re.compile(r"iter-([1-9][0-9]*)\.txt")

#: The phase in which a round ends; a local run has no exchange and ends with its own update.
AGGREGATION = (GLOBAL_UPDATE, GLOBAL_AGGREGATE)


class BadRound(Exception):  # noqa: N818  (it is an outcome that every caller expects, not a failure of the program)
    """A file that does not hold a round."""

    def __init__(self, category: Category, reason: str) -> None:
        super().__init__(reason)
        self.category = category
        self.reason = reason


@dataclass(slots=True)
class LoggedRound:
    """Content of one file; times in seconds. None where the log (the published one, for instance) does not say it.

    Attributes:
        number: communication round, from 1.
        samples: samples that the device computed in this round.
        entries: entries of "time": the local iterations, and in mode esync the exchange.
        iterations: those of them that computed a gradient.
        total_time: from the start of the run to the end of this round.
        aggregate: length of the exchange, waiting included; 0 in a local run.
        computing: "forward and backward" and "local update" of all iterations. Loading data, asking
            the state server, exchanging, waiting and evaluating are not computing.
        accuracy: test accuracy (0 to 1) of the weights that this round ended with.
        accuracy_time: when the device had those weights, from the start of the run.
        bytes_sent, bytes_received: what went over the wire in this round.
        wait: from this device's commit to the last one's.
        transfer: the rest of the exchange.
        overruns: padded iterations whose real work took longer than the speed that they stand for.
    """

    number: int
    samples: int
    entries: int
    iterations: int
    total_time: float
    aggregate: float
    computing: float
    accuracy: float | None
    accuracy_time: float | None
    bytes_sent: int | None
    bytes_received: int | None
    wait: float | None
    transfer: float | None
    overruns: int | None


def read_round(path: Path, number: int) -> LoggedRound:
    """Read and check the file of round `number`.

    Raises:
        BadRound: the file is missing, empty, truncated, or does not hold that round.
    """
    return _check(_load(path), number)


def _load(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or say what stands there instead."""
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
    except (ValueError, RecursionError):  # not text, a number of thousands of digits, thousands of brackets
        raise BadRound("foreign", "not a JSON object") from None
    if not isinstance(log, dict):
        raise BadRound("foreign", "not a JSON object")
    return log


def _check(log: dict[str, Any], number: int) -> LoggedRound:
    """Turn the object of a file into a `LoggedRound`."""
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
    accuracy = _number("accuracy", log.get("accuracy"))
    if accuracy is not None and accuracy > 1:
        raise BadRound("foreign", f"accuracy is {accuracy!r}, expected 0 to 1")
    return LoggedRound(
        number=number,
        samples=int(_required("num_samples", log)),
        entries=len(time),
        iterations=iterations,
        total_time=_required("total_time", log),
        aggregate=_number("the time of the exchange", exchanges[0] if exchanges else None) or 0.0,
        computing=_number("the time of computing", computing) or 0.0,
        accuracy=accuracy,
        accuracy_time=_number("accuracy_time", log.get("accuracy_time")),
        bytes_sent=_count("bytes_sent", log),
        bytes_received=_count("bytes_received", log),
        wait=_number("wait", log.get("wait")),
        transfer=_number("transfer", log.get("transfer")),
        overruns=_count("step_time_overrun", log),
    )


def _number(name: str, value: object) -> float | None:
    """Return a number from 0 to MOST; None if there is none."""
    if value is None:
        return None
    if not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise BadRound("foreign", f"{name} is {value!r:.40}, expected a number from 0 to {MOST:g}")
    return value


def _required(name: str, log: dict[str, Any]) -> float:
    value = _number(name, log.get(name))
    if value is None:
        raise BadRound("foreign", f"no {name}")
    return value


def _count(name: str, log: dict[str, Any]) -> int | None:
    value = _number(name, log.get(name))
    return None if value is None else int(value)
