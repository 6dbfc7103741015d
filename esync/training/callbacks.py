"""Callbacks of a worker's rounds, and those that write logs, curves, reports and progress.

`round_callbacks.RoundCallbacks` tells them, on a real worker and in simulations.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..exchange import Result
from ..runtime.progress import Progress, ProgressReporter
from .csv_curves import CsvCurves
from .round_log import RoundLog

if TYPE_CHECKING:
    from ..coordination.reports import RoundReporter


@dataclass(frozen=True)
class Evaluated:
    """Test accuracy of the common weights at the end of a round.

    Attributes:
        round: number of the round.
        accuracy: share of the test images that are classified correctly.
        elapsed: seconds from the beginning of the run to the evaluation's.
        step: changes of the common model by then.
        samples: of all workers by then.
    """

    round: int
    accuracy: float
    elapsed: float
    step: int
    samples: int


@dataclass(frozen=True)
class FinishedRound:
    """A round that has ended.

    Attributes:
        number: counts from 1.
        entry: what its log file says.
        seconds: since the end of the round before.
        local_iterations: of this worker in it.
        result: how its exchange went; None where workers do not exchange.
        loss: of this worker's last batch; None where it is not known.
        evaluated: the newest evaluation that has ended; None before the first.
    """

    number: int
    entry: dict[str, Any]
    seconds: float
    local_iterations: int
    result: Result | None
    loss: float | None
    evaluated: Evaluated | None


class Callback:
    """Base class of callbacks. A subclass overrides the methods that it needs; the others do nothing.

    All methods are called by the training loop's thread, between iterations, and must not wait for
    anything but a disk that does not keep up.
    """

    def save(self, facts: dict[str, Any]) -> None:
        """Write what has been kept in memory; called at the beginning, now and then, and at the end of the run.

        Args:
            facts: what is true of the whole run so far, for run.json.
        """

    def round(self, ended: FinishedRound) -> None:
        """Take a round that has ended."""

    def accuracy(self, evaluated: Evaluated) -> None:
        """Take an accuracy that has arrived, some rounds after the one that it is of."""

    def say(self, text: str) -> None:
        """Take a message for the user."""

    def flush(self) -> None:
        """Write everything taken so far to the disk before returning."""

    def diverged(self) -> None:
        """Note that the run ends because the loss of some worker is not a number."""

    def close(self) -> None:
        """End; called however the run has ended."""


class CurveFiles(Callback):
    """Writes acc.csv and loss.csv."""

    def __init__(self, curves: CsvCurves) -> None:
        self._curves = curves

    def save(self, facts: dict[str, Any]) -> None:
        """Bring the files up to date."""
        self._curves.write()

    def round(self, ended: FinishedRound) -> None:
        """Keep the loss."""
        if ended.result is not None and ended.loss is not None:
            self._curves.round(ended.entry["total_time"], ended.result, ended.loss)

    def accuracy(self, evaluated: Evaluated) -> None:
        """Keep the accuracy."""
        self._curves.accuracy(evaluated.elapsed, evaluated.step, evaluated.samples, evaluated.accuracy)

    def diverged(self) -> None:
        """Keep a loss that is no number."""
        self._curves.diverged()

    def close(self) -> None:
        """Bring the files up to date."""
        self._curves.write()


class LogFiles(Callback):
    """Writes run.json, and a file for each round.

    Args:
        logs: where to.
    """

    def __init__(self, logs: RoundLog) -> None:
        self._logs = logs

    def save(self, facts: dict[str, Any]) -> None:
        """Write run.json."""
        self._logs.run(facts)

    def round(self, ended: FinishedRound) -> None:
        """Write the round's file."""
        self._logs.round(ended.number, ended.entry)

    def accuracy(self, evaluated: Evaluated) -> None:
        """Write the accuracy into the round's file."""
        self._logs.accuracy(evaluated.round, evaluated.accuracy)

    def flush(self) -> None:
        """Wait until everything is on the disk."""
        self._logs.flush()

    def close(self) -> None:
        """Write what is left."""
        self._logs.close()


class StateServerReports(Callback):
    """Reports rounds to the state server, for its dashboard."""

    def __init__(self, reports: "RoundReporter") -> None:
        self._reports = reports

    def round(self, ended: FinishedRound) -> None:
        """Report the round."""
        self._reports.round(ended.number, ended.entry, ended.local_iterations, ended.seconds)

    def accuracy(self, evaluated: Evaluated) -> None:
        """Report the accuracy."""
        self._reports.accuracy(evaluated.round, evaluated.accuracy)


class ProgressLines(Callback):
    """Prints a line for each round and each accuracy.

    Args:
        reporter: prints.
        rank: of this worker.
    """

    def __init__(self, reporter: ProgressReporter, rank: int) -> None:
        self._reporter, self._rank = reporter, rank

    def round(self, ended: FinishedRound) -> None:
        """Print the round."""
        evaluated = ended.evaluated
        self._reporter.round(
            Progress(
                rank=self._rank,
                round=ended.number,
                local_iterations=ended.local_iterations,
                samples_per_second=ended.entry["num_samples"] / ended.seconds,
                wait=ended.entry["wait"],
                elapsed=ended.entry["total_time"],
                accuracy=None if evaluated is None else evaluated.accuracy,
                accuracy_round=None if evaluated is None else evaluated.round,
            )
        )

    def accuracy(self, evaluated: Evaluated) -> None:
        """Print the accuracy."""
        self._reporter.accuracy(evaluated.round, evaluated.accuracy)

    def say(self, text: str) -> None:
        """Print the line."""
        self._reporter.say(text)
