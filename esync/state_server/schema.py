"""Bodies of the JSON API, checked on arrival and described by OpenAPI.

Durations are in seconds, times in seconds since 1970 by the state server's clock.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator

from .. import config
from ..coordination.client import from_text
from ..runtime.evaluation_result import MAX_PARTS
from ..runtime.logged_values import MAX_NAMES
from ..runtime.metric import ACCURACY, LARGEST, Goal, Metric
from ..runtime.output import LABEL_LENGTH


def _integer(value: Any) -> Any:
    """Return 3.0 as the integer 3, because JSON has only one kind of number."""
    return int(value) if type(value) is float and value.is_integer() else value


_INTEGER = BeforeValidator(_integer)
Rank = Annotated[int, Field(ge=0, lt=config.MAX_WORKERS), _INTEGER]
Workers = Annotated[int, Field(ge=1, le=config.MAX_WORKERS), _INTEGER]
Count = Annotated[int, Field(ge=0, lt=10**9), _INTEGER]
Positive = Annotated[int, Field(ge=1, lt=10**9), _INTEGER]
Large = Annotated[int, Field(ge=0, le=10**15), _INTEGER]  # small enough to be summed in every database
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Duration = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]  # seconds, small enough to be summed
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
#: Names must not have characters that control a terminal, end a line or change the text direction.
_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
Text = Annotated[str, Field(max_length=200, pattern=_PRINTABLE)]
Name = Annotated[Text, Field(min_length=1, max_length=LABEL_LENGTH)]
#: What the description of the API says of an object whose keys are names.
BY_NAME: Any = {"propertyNames": TypeAdapter(Name).json_schema()}
Value = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
State = Literal["waiting for workers", "running", "silent", "ended"]
WorkerState = Literal["not seen", "computing", "waiting", "exchanging", "dropped", "silent", "done"]


class Body(BaseModel):
    """The body of a request, in which unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Watching(Body):
    """The policy against stragglers, and what makes one (mode sync-switch)."""

    policy: Literal["elastic", "greedy"]
    window: Positive = Field(
        config.STRAGGLER_WINDOW, le=config.STRAGGLER_WINDOW_MAX, description="steps over which throughput is measured"
    )
    stride: Positive = Field(config.STRAGGLER_STRIDE, description="steps between two measurements")
    raise_after: Positive = Field(
        config.STRAGGLER_RAISE_AFTER, description="successive slow measurements that make a straggler"
    )
    clear_after: Positive = Field(config.STRAGGLER_CLEAR_AFTER, description="successive other measurements that end it")
    sigmas: Seconds = Field(config.STRAGGLER_SIGMAS, description="standard deviations below the mean throughput")
    floor: Share = Field(config.STRAGGLER_FLOOR, gt=0, description="share of the mean throughput")


class Tiering(Body):
    """How to divide the workers by their speeds (mode tiered)."""

    tiers: Annotated[list[Count], Field(max_length=config.MAX_WORKERS)] | None = Field(
        None, description="tier of each rank, from 0; without it, by speed"
    )
    leave_out: Annotated[list[Rank], Field(max_length=config.MAX_WORKERS)] | None = Field(
        [], description="ranks that are left out; null: by share of the speed"
    )
    exchange_share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="largest share of a round for an exchange, where settings are chosen"
    )
    chooses_iterations: bool = Field(True, description="whether to choose `slowest_iterations`")
    compressions: Annotated[dict[Name, Annotated[float, Field(gt=0)]], Field(max_length=8)] = Field(
        {},
        description="compressions to choose from, the finest one first, and the bits of a value",
        json_schema_extra=BY_NAME,
    )


class Begin(Body):
    """Begins a job; has no effect if a job with the same `run` has begun."""

    num_workers: Workers
    epsilon: Seconds | None = Field(
        None, description="margin of READY in seconds; without it, chosen from measurements"
    )
    slowest_iterations: Positive = config.SLOWEST_ITERATIONS
    run: str = Field("", max_length=64, pattern=r"^[ -~]*$", description="text unique to this training")
    watching: Watching | None = Field(None, description="how to detect stragglers; without it, not at all")
    tiering: Tiering | None = Field(None, description="how to divide the workers into tiers; without it, not at all")


class Steps(Body):
    """The duration of a worker's newest steps, without waits for other workers."""

    rank: Rank
    since: Count = Field(description="steps in earlier messages of this process")
    steps: Positive = Field(description="steps in this message")
    seconds: Duration = Field(description="total duration of these steps")


class Directive(BaseModel):
    """The current directive of the policy against stragglers, while the schedule is synchronous."""

    apart: list[int] = Field(description="ranks that rounds must not wait for")
    asynchronous: bool = Field(description="whether to train asynchronously meanwhile")


class Query(Body):
    """Asks, before a local iteration, whether to exchange instead."""

    rank: Rank
    round: Count
    iteration: Count = Field(description="local iterations done in this round; with 0 a worker is never READY")
    capability: Seconds = Field(description="seconds of the newest iteration, not smoothed; 0: unknown")
    round_trip: Seconds | None = Field(None, description="seconds that the last query took")


class Decision(BaseModel):
    """Whether the worker is READY to exchange."""

    ready: bool
    lease: float = Field(description="seconds for which the caller need not ask again")
    tier: int = Field(0, description="tier of the caller: rounds wait for those of tier 0 only")
    left_out: bool = Field(False, description="whether the caller is to send no updates for now")
    share: float = Field(0.0, description="share of the total speed, of a caller that is left out")
    iterations: int = Field(0, description="of the slowest worker in this round, where settings are chosen; else 0")
    compression: str = Field("", description="of this round's exchange, where it is chosen; else empty")


class Reset(Body):
    """Says that a worker has the model of `round` and begins that round."""

    rank: Rank
    round: Count
    rejoin: bool = Field(False, description="this worker replaces a dead one")
    present: Annotated[str, Field(pattern=r"^[0-9a-f]+$", max_length=config.MAX_WORKERS // 4)] | None = Field(
        None,
        description="who takes part from now on, a hexadecimal number with bit r for rank r; without it, unchanged",
    )
    aside: bool = Field(False, description="rounds do not wait for this worker")
    exchange: Seconds | None = Field(None, description="seconds of its last exchange, without waiting for others")

    def participants(self) -> list[int] | None:
        """Return the ranks that take part from now on; None if that has not changed."""
        return None if self.present is None else from_text(self.present)


class Report(Body):
    """A worker's report of a finished round, for display only, not for decisions."""

    rank: Rank
    round: Count = Field(description="in asynchronous modes the number of this worker's exchange")
    device: Text
    host: Text
    local_iterations: Count
    samples: Large
    seconds: Duration = Field(description="duration of the whole round")
    compute: Duration
    wait: Duration
    exchange: Duration
    bytes_sent: Large
    bytes_received: Large
    accuracy: Annotated[float, Field(allow_inf_nan=False)] | None = Field(
        None, description="test accuracy, 0 to 1, or the value of `metric`"
    )
    accuracy_round: Count | None = Field(None, description="round whose weights have that accuracy")
    metric: Name = Field(ACCURACY, description="name of what the evaluations compute")
    goal: Goal = Field("max", description="whether high or low values are good")
    run_round: Count | None = Field(None, description="asynchronous modes: rounds of the run, commits ÷ workers")
    logged: Annotated[dict[Name, Value], Field(max_length=MAX_NAMES)] = Field(
        {},
        description="means of what the program has logged in the round, by name",
        json_schema_extra=BY_NAME,
    )
    parts: Annotated[dict[Name, Value], Field(max_length=MAX_PARTS)] = Field(
        {},
        description="further results of the evaluation, by name, such as recall/3",
        json_schema_extra=BY_NAME,
    )

    @model_validator(mode="after")
    def _possible(self) -> "Report":
        metric = Metric(self.metric, self.goal)
        if self.accuracy is not None and not metric.possible(self.accuracy):
            raise ValueError(f"{metric.name} is {self.accuracy!r}, expected {metric.expected()}")
        return self


class End(Body):
    """Ends a job, so that another one can begin under its name at once."""

    reason: Text = "done"


class Nothing(BaseModel):
    """An empty answer."""


class Problem(BaseModel):
    """The reason why a request was refused."""

    error: str


class JobSummary(BaseModel):
    """A job in a list."""

    name: str
    id: str = Field(description="id of this run, which no other run under the same name has")
    run: str
    state: State
    started: float
    heard: float | None = Field(description="when a worker last reported something new")
    ended: float | None
    reason: str
    num_workers: int
    round: int
    epsilon: float = Field(
        description="seconds that guard READY; where it is chosen from what is measured, the largest"
    )
    slowest_iterations: int
    slowest: int | None = Field(description="rank of the slowest worker")


class JobList(BaseModel):
    """The jobs that this server coordinates, the newest first.

    `history` says whether the database of the history is available yet.
    """

    jobs: list[JobSummary]
    history: bool


class Cluster(BaseModel):
    """The processes for which the cluster waits, according to the scheduler at DMLC_PS_ROOT_URI."""

    missing: str = Field(description="processes and where they run; empty: none, or no scheduler answers")
    advice: str = Field(description="how to start them, or what else to do")


class WorkerView(BaseModel):
    """The present state of a worker."""

    rank: int
    state: WorkerState
    round: int
    local_iterations: int = Field(description="local iterations done in this round")
    ready: bool
    capability: float = Field(description="seconds of an iteration, smoothed; 0 while unknown")
    epsilon: float = Field(description="seconds that guard READY for this worker")
    heard: float | None
    seconds_per_iteration: float = Field(description="from the queries or, without any, the reports; 0: unknown")
    speed: float = Field(description="samples per second while it computes; 0 while unknown")
    last_report: Report | None


class Totals(BaseModel):
    """Totals of all workers, each in the last round that it has reported.

    Speeds are in samples per second.
    """

    workers: int = Field(description="number of workers that have reported")
    speed_limit: float = Field(description="sum of their speeds: the throughput if nobody ever waited")
    throughput: float = Field(description="sum of the throughputs that they reach")
    efficiency: float | None = Field(description="throughput ÷ speed_limit")
    lost_waiting: float = Field(description="throughput lost by waiting for the slowest")
    lost_exchanging: float
    accuracy: float | None = Field(description="the newest accuracy, or value of the metric")
    accuracy_round: int | None
    parts: dict[str, float] = Field(description="further results of that evaluation, by name")
    metric: str
    goal: Goal


class JobView(JobSummary):
    """A job with its workers."""

    now: float
    totals: Totals | None
    workers: list[WorkerView]
    history_dropped: int = Field(description="entries of all jobs that did not get into the database")


class RoundRow(Report):
    """One worker's round in the history."""

    id: int
    finished: float


class Rounds(BaseModel):
    """A page of rounds in the order of their arrival; `next` is the `after` of the next page."""

    rounds: list[RoundRow]
    next: int


class CurvePoint(BaseModel):
    """An evaluation; `at` is in seconds since the run began, as in `Curves`."""

    round: int
    at: float
    accuracy: float


class LoggedPoint(BaseModel):
    """The mean of a logged number over all workers by samples; `at` as in `Curves`."""

    at: float
    value: float


class Curves(BaseModel):
    """A whole run over time: lists of the same length.

    Values are sums over all workers, per second.
    """

    started: float
    at: list[float]
    samples: list[float]
    bytes_sent: list[float]
    bytes_received: list[float]
    accuracy: list[CurvePoint]
    metric: str = Field(description="what `accuracy` holds values of")
    goal: Goal
    logged: dict[str, list[LoggedPoint]] = Field(description="what the program has logged, by name")


class EventRow(BaseModel):
    """An event of a job, such as a restart or a replacement."""

    id: int
    at: float
    kind: str
    rank: int | None
    round: int | None
    text: str


class Events(BaseModel):
    """A page of events in the order of their arrival; `next` is the `after` of the next page."""

    events: list[EventRow]
    next: int


class RunRow(BaseModel):
    """A run in the history, with its totals."""

    id: str
    job: str
    run: str
    started: float
    ended: float | None
    reason: str
    num_workers: int
    epsilon: float | None
    slowest_iterations: int
    rounds: int
    seconds: float = Field(description="from the start to the last report")
    samples: int
    bytes_sent: int
    bytes_received: int
    compute: float = Field(description="sum over all workers")
    wait: float
    exchange: float
    best_accuracy: float | None = Field(description="best accuracy, or value of the metric by its goal")
    metric: str
    goal: Goal
    logged: list[str] = Field(description="names of what the program has logged")


class Runs(BaseModel):
    """Runs in the history, the newest first."""

    runs: list[RunRow]
