"""Read a device's `iter-N.txt` files, each of which holds one communication round.

The content of a file is checked completely. An invalid file (empty, truncated, or of another program)
raises `BadRound` with a category and a reason, so that the caller can report and skip it.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ..runtime.metric import TEST_ACCURACY, Metric, finite
from ..runtime.phase_timer import COMPUTE, GLOBAL_AGGREGATE, GLOBAL_UPDATE, LOCAL_UPDATE
from .metrics import MAX_NUMBER

Category = Literal["missing", "empty", "truncated", "foreign"]
Amount = Annotated[float, Field(ge=0, le=MAX_NUMBER)]  # seconds
Count = Annotated[int, Field(ge=0, le=int(MAX_NUMBER))]
#: A number that a program has logged; None if it was not finite.
LoggedNumber = Annotated[float | None, AfterValidator(lambda value: None if value is None else finite(value))]

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


class LoggedRound(BaseModel):
    """Content of a round file; times in seconds.

    None means that the log, for instance a published one, does not have a value. Its metric is the
    context of the validation.

    Attributes:
        number: number of the communication round, from 1; in asynchronous modes of this device's
            exchange.
        samples: number of samples that the device used in this round.
        time: iteration → phase → its time; emptied after the validation, as most of the memory is its.
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
        logged: means of what the program has logged, by name.
        parts: further results of the evaluation, by name, such as recall/3.
    """

    number: int = Field(alias="num_iters")
    samples: Count = Field(alias="num_samples")
    time: dict[int, dict[str, Amount]] = Field(min_length=1)
    entries: int = 0
    iterations: int = 0
    total_time: Amount
    aggregate: float = 0.0
    computing: float = 0.0
    accuracy: float | None = Field(default=None, alias="value of the metric")
    evaluation_time: Amount | None = None
    bytes_sent: Count | None = None
    bytes_received: Count | None = None
    wait: Amount | None = None
    transfer: Amount | None = None
    overruns: Count | None = Field(default=None, alias="step_time_overrun")
    run_round: Count | None = Field(default=None, alias="round")
    logged: dict[str, LoggedNumber] = {}
    parts: dict[str, LoggedNumber] = {}

    @model_validator(mode="before")
    @classmethod
    def _name_metric(cls, log: Any, info: ValidationInfo) -> Any:
        if not isinstance(log, dict):
            raise ValueError("it is not a JSON object")
        metric: Any = info.context
        return {**log, "value of the metric": log.get(metric.name)}

    @field_validator("accuracy")
    @classmethod
    def _possible(cls, value: float | None, info: ValidationInfo) -> float | None:
        metric: Any = info.context
        if value is None or metric.possible(value):
            return value
        if metric.is_accuracy:
            raise ValueError(f"{value:g}, expected {metric.expected()}")
        return None  # the loss has diverged

    @model_validator(mode="after")
    def _sum_up(self) -> "LoggedRound":
        last = self.time[max(self.time)]
        exchanges = [last[phase] for phase in AGGREGATION if phase in last]
        if not exchanges and LOCAL_UPDATE not in last:
            raise ValueError("its last iteration ends neither in an exchange nor in a local update")
        self.aggregate = exchanges[0] if exchanges else 0.0
        self.entries = len(self.time)
        self.iterations = sum(COMPUTE in phases for phases in self.time.values())
        self.computing = sum(phases.get(COMPUTE, 0.0) + phases.get(LOCAL_UPDATE, 0.0) for phases in self.time.values())
        self.time.clear()
        return self


def read_round(path: Path, number: int, metric: Metric = TEST_ACCURACY) -> LoggedRound:
    """Read and check the file of round `number`; `metric` is the one that its run evaluates.

    Raises:
        BadRound: the file is missing, empty, truncated, or does not hold that round.
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
        log = LoggedRound.model_validate_json(content, context=metric)
    except ValidationError as error:
        broken = error.errors()[0]["type"] == "json_invalid" and content.lstrip().startswith(b"{")
        raise BadRound("truncated" if broken else "foreign", first_problem(error)) from None
    if log.number != number:
        raise BadRound("foreign", f"num_iters is {log.number}, the file name says {number}")
    return log


def first_problem(error: ValidationError) -> str:
    """Return where the first problem is, and what it is."""
    problem: Any = error.errors(include_url=False, include_input=False)[0]
    location = " → ".join(str(part) for part in problem["loc"])
    return f"{location}: {problem['msg']}" if location else problem["msg"]
