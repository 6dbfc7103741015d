"""Progress of a worker: a line of text per round for people, or JSON for the launcher."""

import json
import logging
import os
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any, TextIO

from .metric import ACCURACY, Metric
from .output import write_line

log = logging.getLogger(__name__)

#: Mark in front of progress in JSON on standard output, which the environment asks for.
MARK = "@progress "
VARIABLE = "ESYNC_PROGRESS"
#: The same mark for events, and their kinds.
EVENT_MARK = "@event "
READY = "ready"  # the worker is about to look for the others
JOINED = "joined"  # the worker has the common model and begins to train
CUT_OFF = "cut off"  # it ends because it cannot reach the others any more, with the reason
FINISHED = "finished"  # it knows that the run is finished, and does not need other processes any more
MISSING = "missing"  # processes for which the cluster waits, according to the scheduler; "" for none
ASIDE = "aside"  # whether the other workers' rounds do not wait for it, and possibly the reason in words
SETTINGS = "settings"  # what has been chosen automatically for the next rounds, in words
WARNING = "warning"  # a message for the user
MEASURED = "measured"  # all measurements so far, which replace an earlier report of the same process
CONTRIBUTED = "contributed"  # ranks of the workers with updates in the final model, according to a server
LEFT = "left"  # it has left the finished run, and cannot be replaced any more
DONE = "done"  # it has finished its work and left the cluster
FAILED = "failed"  # it ends by an exception, reported with its round; a replacement may succeed
# It ends on purpose, and reports the reason; a replacement would do the same. "consequence" is whether
# it ends only because another process has failed.
OVER = "over"

#: Advice for a run that is finished, but has no final model.
WITHOUT_FINAL_MODEL = (
    "nobody has written the final model; with --checkpoint-dir and --resume the same command writes it from the newest "
    "checkpoint (after the rounds that this one lacks); without checkpoints the run has to be done again"
)


@dataclass(frozen=True)
class Progress:
    """Progress of a worker after a round.

    Attributes:
        rank: the worker's rank.
        round: the finished round of the run.
        local_iterations: the worker's local iterations since its exchange before.
        samples_per_second: the worker's throughput in that time.
        wait: seconds from this worker's commit to the last one.
        elapsed: seconds since the start.
        accuracy: newest accuracy; None if this worker has not evaluated any weights.
        accuracy_round: the round of the evaluated weights.
        metric: name of the metric that is evaluated instead of the accuracy.
        exchanges: the worker's exchanges so far, where it exchanges on its own; None in rounds.
    """

    rank: int
    round: int
    local_iterations: int
    samples_per_second: float
    wait: float
    elapsed: float
    accuracy: float | None = None
    accuracy_round: int | None = None
    metric: str = ACCURACY
    exchanges: int | None = None

    def line(self) -> str:
        """Return the progress as a line of text."""
        plural = " " if self.local_iterations == 1 else "s"
        exchange = "" if self.exchanges is None else f"  exchange {self.exchanges:4d}"
        text = (
            f"round {self.round:4d}{exchange}  {self.local_iterations:3d} local iteration{plural}"
            f"  {self.samples_per_second:7.1f} samples/s  wait {self.wait:6.3f} s"
        )
        if self.accuracy is not None:
            text += f"  {self.metric} {Metric(self.metric).text(self.accuracy)} (round {self.accuracy_round})"
        return text


def split(line: str) -> tuple[str, str]:
    """Split a line of a worker's output into the text before a report, and the report ("" for none).

    There may be text before it, for instance a progress bar without a newline.
    """
    places = [position for mark in (MARK, EVENT_MARK) if (position := line.find(mark)) >= 0]
    return (line[: min(places)], line[min(places) :]) if places else (line, "")


def parse(line: str) -> Progress | None:
    """Return the progress in a line of a worker's output; None if the line is something else."""
    if not line.startswith(MARK):
        return None
    try:
        return Progress(**json.loads(line[len(MARK) :]))
    except (ValueError, TypeError):
        return None


def to_launcher() -> bool:
    """Return whether this is the process that the launcher has started, which may report to it.

    The first process that calls this stores its id in the variable. Its children inherit the id, and so
    do not report.
    """
    if os.environ.get(VARIABLE) == "json":
        os.environ[VARIABLE] = f"json:{os.getpid()}"
    return os.environ.get(VARIABLE) == f"json:{os.getpid()}"


def report_event(kind: str, stream: TextIO | None = None, **facts: Any) -> None:
    """Report an event to the launcher; do nothing if there is none."""
    if to_launcher():
        write_line(EVENT_MARK + json.dumps({"kind": kind, **facts}), stream or sys.stdout)


def warn(text: str, launcher: bool = True) -> None:
    """Log a warning, and report it to the launcher if there is one.

    Args:
        text: the warning.
        launcher: False if another worker reports the same warning to the launcher.
    """
    log.warning("%s", text)
    if launcher:
        report_event(WARNING, text=text)


def parse_event(line: str) -> dict[str, Any] | None:
    """Return the event in a line of a worker's output; None if the line is something else."""
    if not line.startswith(EVENT_MARK):
        return None
    try:
        event = json.loads(line[len(EVENT_MARK) :])
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


class ProgressReporter:
    """Prints a worker's progress.

    Args:
        quiet: whether to print no text.
        machine: whether to print JSON for the launcher.
        stream: where to print; None stands for standard output.
    """

    def __init__(self, quiet: bool, machine: bool, stream: TextIO | None = None) -> None:
        self._quiet, self._machine = quiet, machine
        self._stream = stream or sys.stdout
        self._last: Progress | None = None

    def round(self, progress: Progress) -> None:
        """Report the end of a round."""
        self._last = progress
        self._report_to_launcher()
        if not self._quiet:
            write_line(progress.line(), self._stream)

    def accuracy(self, number: int, accuracy: float, metric: str = ACCURACY) -> None:
        """Report the accuracy, or another metric, of an earlier round."""
        if self._last is not None:
            self._last = replace(self._last, accuracy=accuracy, accuracy_round=number, metric=metric)
            self._report_to_launcher()
        if not self._quiet:
            write_line(f"round {number:4d}  {metric} {Metric(metric).text(accuracy, 4)}", self._stream)

    def print(self, text: str) -> None:
        """Print a message."""
        if not self._quiet:
            write_line(text, self._stream)

    def _report_to_launcher(self) -> None:
        if self._machine and self._last is not None:
            write_line(MARK + json.dumps(asdict(self._last)), self._stream)
