"""Read and write the summary of one mode, NAME.json: {host: {device: {lists}}}.

The first five lists and their rounding are those of the published implementation, so that its
summaries and ours are compatible. Further lists are in the same object. Lists of accuracies have one
value per *evaluated* round (see `accuracy_rounds`), all other lists one per round (`rounds_list`),
or with `rounds_joined` one for several rounds, the last of which is in `rounds_list`. If the run has
another metric than accuracy, `metric` names it, and the lists of accuracies contain its values.
Times are in seconds.
"""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ..algorithms.registry import is_stem
from ..runtime.files import write_atomically
from ..runtime.metric import TEST_ACCURACY, Metric
from ..runtime.output import LABEL_LENGTH, is_label
from .metrics import INSTANT, MAX_NUMBER
from .rounds import Amount, Count, first_problem

#: Lists with a value for each round, or none at all.
_OPTIONAL = (
    *("run_rounds_list", "total_time_list", "computing_time_list", "bytes_sent_list", "bytes_received_list"),
    *("wait_list", "transfer_list"),
)


class SummaryError(Exception):
    """Raised when a NAME.json or run.json cannot be used; the message names the field."""


Length = Annotated[float, Field(ge=0, le=100)]  # in points
Dashes = Annotated[tuple[Length, ...], Field(min_length=2, max_length=16)]


def _label(text: str) -> str:
    if not is_label(text):
        raise ValueError(f"should be one line of up to {LABEL_LENGTH} printable characters")
    return text


def _stem(text: str) -> str:
    if not is_stem(text):
        raise ValueError("should be a file's name of up to 64 letters, digits, '.', '_' and '-', without .json")
    return text


class StyleInfo(BaseModel):
    """Color, line and marker of an algorithm as its runs give them, or None; see `algorithms.styles.Style`."""

    color: Annotated[str, Field(max_length=40)] | None = None
    line: Literal["-", "--", "-.", ":", "solid", "dashed", "dashdot", "dotted"] | tuple[Length, Dashes] | None = None
    marker: Annotated[str, Field(pattern=r"^[.,ov^<>12348spP*hH+xXDd|_]$")] | None = None


class AlgorithmInfo(BaseModel):
    """Label, summary name and style of an algorithm as its runs give them, or None.

    The algorithm may be unknown here; nothing that its runs name is imported.
    """

    model_config = ConfigDict(extra="allow")

    label: Annotated[str, AfterValidator(_label)] | None = None
    summary: Annotated[str, AfterValidator(_stem)] | None = None
    style: StyleInfo = StyleInfo()


class RunInfo(BaseModel):
    """The content of run.json, which a worker writes once per run.

    Only fields that the figures need are checked, but all are kept.
    """

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    batch_size: int | None = Field(default=None, gt=0, le=MAX_NUMBER)
    # seconds that an iteration is padded to; None: not padded
    step_time: float | None = Field(default=None, ge=INSTANT, le=MAX_NUMBER)
    iterations: Count | None = None
    overruns: Count | None = None
    model_bytes: int | None = Field(default=None, gt=0, le=MAX_NUMBER)
    metric: Metric = TEST_ACCURACY
    target: float | None = None  # value of the metric that ends the run
    algorithm: AlgorithmInfo | None = None
    tier: int | None = None  # mode tiered: the device need not take part in every round

    @property
    def whole_batch(self) -> int | None:
        """Samples of an iteration of `step_time` seconds; None where batches do not follow the devices' speeds."""
        options = (self.model_extra or {}).get("options")
        by_speed = isinstance(options, dict) and options.get("batch_by_speed")
        return self.batch_size if by_speed else None


class DeviceSummary(BaseModel):
    """All rounds of one device, as columns."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    metric: Metric = TEST_ACCURACY  # metric of the lists of accuracies

    # published
    accuracy_list: list[float]  # accuracies rounded to 3 digits; other metrics are not rounded
    num_samples_list: list[Count]
    self_iters_list: list[Count]  # entries of "time"
    elapsed_time_list: list[Count]  # total_time in whole seconds
    aggregate_time_list: list[Amount]  # length of the exchange, waiting included

    # added
    rounds_list: list[Count] = []
    run_rounds_list: list[Count] = []  # asynchronous modes: rounds of the run at these exchanges of the device
    rounds_joined: bool = False  # whether a value covers all rounds since the previous entry
    accuracy_rounds: list[Count] = []
    accuracy_time_list: list[Amount] = []  # times of the evaluated weights
    accuracy_exact_list: list[float] = []  # not rounded
    evaluation_time_list: list[Amount | None] = []  # durations of the evaluations
    # further results of the evaluations, such as recall/3: name → values; None: missing, or not finite
    parts: dict[str, list[float | None]] = {}
    computing_time_list: list[Amount] = []  # "forward and backward" + "local update", without loading data
    bytes_sent_list: list[Count] = []
    bytes_received_list: list[Count] = []
    bytes_estimated: bool = False  # the log has no bytes; assumed is one push of the model per round, and no pull
    wait_list: list[Amount | None] = []  # from this device's commit to the last one's
    transfer_list: list[Amount | None] = []  # the rest of the exchange
    total_time_list: list[Amount] = []  # ends of the rounds, not rounded
    # what the program has logged: name → mean of each round; None: not logged in that round, or not finite
    logged: dict[str, list[float | None]] = {}
    total_time: Amount = 0.0  # of the last round, not rounded
    iterations: Count = 0  # gradients computed
    overruns: Count = 0  # padded iterations whose real work took longer than the speed that they stand for
    run: RunInfo | None = None
    # what the summary was made from (discovery.Source), so that it is known whether that has changed since
    source_files: Count = 0
    source_bytes: Count = 0

    @field_validator("accuracy_list", "accuracy_exact_list")
    @classmethod
    def _possible(cls, values: list[float], info: ValidationInfo) -> list[float]:
        metric = info.data.get("metric", TEST_ACCURACY)  # missing if it is invalid itself
        for value in values:
            if not metric.possible(value):
                raise ValueError(f"{metric.name} is {value!r}, expected {metric.expected()}")
        return values

    @model_validator(mode="after")
    def _complete(self) -> "DeviceSummary":
        """Check that the lengths of the lists match, and complete the lists that a published summary lacks."""
        rounds = len(self.elapsed_time_list)
        if rounds == 0:
            raise ValueError("no rounds")
        if not self.rounds_list:
            self.rounds_list = list(range(1, rounds + 1))
            if len(self.accuracy_list) == rounds:  # evaluated in every round; otherwise the times are unknown
                self.accuracy_rounds = self.rounds_list
                self.accuracy_time_list = [float(seconds) for seconds in self.elapsed_time_list]
                self.accuracy_exact_list = self.accuracy_list
        self.total_time = self.total_time or float(self.elapsed_time_list[-1])
        evaluations = len(self.accuracy_rounds)
        lengths = {
            **dict.fromkeys(("num_samples_list", "self_iters_list", "aggregate_time_list", "rounds_list"), rounds),
            **dict.fromkeys(("accuracy_time_list", "accuracy_exact_list"), evaluations),
            **{name: rounds for name in _OPTIONAL if getattr(self, name)},
            **({"evaluation_time_list": evaluations} if self.evaluation_time_list else {}),
        }
        checked = [(name, getattr(self, name), expected) for name, expected in lengths.items()]
        checked += [(f"logged {name}", means, rounds) for name, means in self.logged.items()]
        checked += [(f"part {name}", values, evaluations) for name, values in self.parts.items()]
        for name, values, expected in checked:
            if len(values) != expected:
                raise ValueError(f"{name} has {len(values)} values where {expected} are expected")
        return self

    @property
    def rounds(self) -> int:
        """Number of rounds that the lists cover."""
        return self.rounds_list[-1] if self.rounds_joined else len(self.rounds_list)

    @property
    def run_rounds(self) -> int:
        """Number of rounds of the run, where `rounds` may be exchanges of the device."""
        return self.run_rounds_list[-1] if self.run_rounds_list else self.rounds

    @property
    def unit(self) -> Literal["round", "exchange"]:
        """What `rounds_list` numbers."""
        return "exchange" if self.run_rounds_list else "round"

    @property
    def evaluated_rounds(self) -> list[int]:
        """The round of the run at each evaluation."""
        run_rounds = dict(zip(self.rounds_list, self.run_rounds_list, strict=False))
        return [run_rounds.get(number, number) for number in self.accuracy_rounds]

    @property
    def missing_rounds(self) -> int:
        """Number of rounds before the last one that are missing, 0 if the device need not take part in every round."""
        return 0 if self.run and self.run.tier is not None else self.rounds_list[-1] - self.rounds

    @property
    def round_ends(self) -> list[tuple[int, float]]:
        """Number and end of each round, in whole seconds; joined rounds are assumed to be equally long."""
        ends = list(zip(self.rounds_list, map(float, self.elapsed_time_list), strict=True))
        if not self.rounds_joined:
            return ends
        return [
            (number, float(round(begin + (end - begin) * (number - before) / (last - before))))
            for (before, begin), (last, end) in pairwise([(0, 0.0), *ends])
            for number in range(before + 1, last + 1)
        ]

    def estimate_bytes(self, model_bytes: int) -> None:
        """Set the bytes as the published figures count them: one push a round, no pull."""
        self.bytes_sent_list = [model_bytes] * len(self.rounds_list)
        self.bytes_received_list = []
        self.bytes_estimated = True


#: host → device → columns
Summary = dict[str, dict[str, DeviceSummary]]

_SUMMARY: TypeAdapter[Summary] = TypeAdapter(Summary)


def columns_of(summary: Summary) -> list[DeviceSummary]:
    """Return the columns of all devices."""
    return [device for devices in summary.values() for device in devices.values()]


def algorithm_info_of(summary: Summary) -> AlgorithmInfo:
    """Return the description of the first device that has one."""
    infos = (device.run.algorithm for device in columns_of(summary) if device.run and device.run.algorithm)
    return next(infos, AlgorithmInfo())


def save_summary(summary: Summary, path: Path) -> None:
    """Write NAME.json; the same summary gives the same bytes."""
    write_atomically(path, _SUMMARY.dump_json(summary) + b"\n")


def load_summary(path: Path) -> Summary:
    """Read NAME.json.

    Raises:
        SummaryError: the file is not a summary; the message names the invalid field.
        OSError: the file cannot be read.
    """
    try:
        summary = _SUMMARY.validate_json(path.read_bytes())
    except ValidationError as error:
        raise SummaryError(f"{path} is not a summary: {first_problem(error)}; run summarize again") from None
    if not any(summary.values()):
        raise SummaryError(f"{path} holds no device; run summarize again")
    return summary


def load_run_info(path: Path) -> RunInfo | None:
    """Read a device's run.json; return None if there is none.

    Raises:
        SummaryError: the file is not a run.json, or cannot be read.
    """
    try:
        return RunInfo.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise SummaryError(first_problem(error)) from None
    except OSError as error:
        raise SummaryError(f"cannot be read: {error.strerror}") from None
