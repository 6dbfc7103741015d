"""Callbacks of a worker's rounds, and those that write logs, curves, reports and progress.

`round_callbacks.RoundCallbacks` calls them, on real workers and in simulations.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import config
from ..exchange import Result
from ..loggers.logger import Logger, evaluation_scalars, round_scalars
from ..runtime.logged_values import LOSS
from ..runtime.metric import EVALUATION_TIME, PARTS, TEST_ACCURACY, Metric
from ..runtime.phase_timer import LOGGED
from ..runtime.progress import Progress, ProgressReporter
from .round_log import RoundLog

if TYPE_CHECKING:
    from ..algorithms import Algorithm
    from ..coordination.round_reporter import RoundReporter

#: Columns of the curves: `Step` counts the changes of the common model (one per round of synchronous
#: training, one per commit used at once), `Time` is in seconds since the run began, `Samples` are
#: those of all workers.
HEADING = "Wall time,Time,Step,Samples,Value"
ACCURACY_FILE, LOSS_FILE = "acc.csv", "loss.csv"
FILES = (ACCURACY_FILE, LOSS_FILE)


@dataclass(frozen=True)
class Evaluated:
    """An evaluation of the common weights at the end of a round.

    Attributes:
        round: number of the round of the run.
        exchanges: the worker's exchanges by then, the number of its log file.
        accuracy: value of the metric; by default the share of the test images that are classified
            correctly.
        elapsed: seconds from the beginning of the run to that of the evaluation.
        step: changes of the common model by then.
        samples: samples that all workers had used by then.
        metric: what was evaluated.
        parts: further results by name; see `EvaluationResult`.
        seconds: how long it took; None if that was not measured.
    """

    round: int
    exchanges: int
    accuracy: float
    elapsed: float
    step: int
    samples: int
    metric: Metric = TEST_ACCURACY
    parts: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None


@dataclass(frozen=True)
class FinishedRound:
    """A round that has ended, or in asynchronous modes an exchange of this worker.

    Attributes:
        number: of this worker's exchange, from 1; in modes with rounds that of the round.
        entry: the content of its log file.
        seconds: seconds since the end of the round before.
        local_iterations: this worker's local iterations in it.
        result: the result of its exchange.
        evaluated: the newest completed evaluation; None before the first.
    """

    number: int
    entry: dict[str, Any]
    seconds: float
    local_iterations: int
    result: Result
    evaluated: Evaluated | None


class Callback:
    """Base class of callbacks, whose methods do nothing.

    A subclass overrides those that it needs. All methods are called in the training loop's thread,
    between iterations, and must not block, except for a slow disk.
    """

    def save(self, facts: dict[str, Any]) -> None:
        """Write buffered data; called at the beginning, periodically, and at the end of the run.

        Args:
            facts: facts about the whole run so far, for run.json.
        """

    def round(self, ended: FinishedRound) -> None:
        """Handle a finished round."""

    def accuracy(self, evaluated: Evaluated) -> None:
        """Handle an accuracy, which arrives some rounds after the evaluated one."""

    def message(self, text: str) -> None:
        """Handle a message for the user."""

    def flush(self) -> None:
        """Write all data to the disk before returning."""

    def diverged(self) -> None:
        """Handle the end of the run because the loss of a worker is not a number."""

    def close(self) -> None:
        """Release all resources; always called at the end of the run."""


class CurveFiles(Callback):
    """Writes acc.csv and loss.csv beside rank 0's round files, for Sync-Switch's reports.

    Args:
        files: the folder of the files.
        started: when the run began, in seconds since 1970; 0 in virtual time.
        step: the last step to keep of existing files; later steps are removed.
    """

    def __init__(self, files: RoundLog, started: float, step: int = 0) -> None:
        self._files, self._started = files, started
        self._lines = {name: _lines_before(files.text(name), step) for name in FILES}
        self._rounds = 0
        self._last = (0.0, 0, 0)  # time, step, samples

    def save(self, facts: dict[str, Any]) -> None:
        """Update the files."""
        self.close()

    def round(self, ended: FinishedRound) -> None:
        """Record the mean loss of the round, which has one iteration."""
        result, loss = ended.result, ended.entry.get(LOGGED, {}).get(LOSS)
        if loss is None:
            return
        self._last = (ended.entry["total_time"], result.step, result.samples)
        self._rounds += 1
        if self._rounds == 1 or self._rounds % config.LOSS_EVERY == 0 or result.finished:
            self._add(LOSS_FILE, *self._last, loss)

    def accuracy(self, evaluated: Evaluated) -> None:
        """Record the accuracy."""
        self._add(ACCURACY_FILE, evaluated.elapsed, evaluated.step, evaluated.samples, evaluated.accuracy)

    def diverged(self) -> None:
        """Record that the loss, of this or another worker, is no longer a number."""
        self._add(LOSS_FILE, *self._last, math.nan)

    def close(self) -> None:
        """Update the files."""
        for name, lines in self._lines.items():
            self._files.write(name, "\n".join([HEADING, *lines, ""]))

    def _add(self, name: str, time: float, step: int, samples: int, value: float) -> None:
        self._lines[name].append(f"{self._started + time:.6f},{time:.6f},{step},{samples},{value:.8g}")


class LogFiles(Callback):
    """Writes run.json, and a file for each round.

    Args:
        logs: the log files of this worker.
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
        """Add the evaluation to the round's file."""
        values = {
            evaluated.metric.name: evaluated.accuracy,
            **({PARTS: evaluated.parts} if evaluated.parts else {}),
            **({} if evaluated.seconds is None else {EVALUATION_TIME: round(evaluated.seconds, 6)}),
        }
        self._logs.evaluation(evaluated.exchanges, values)

    def flush(self) -> None:
        """Wait until all files are written."""
        self._logs.flush()

    def close(self) -> None:
        """Write the remaining files, and close the logs."""
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
        self._reports.accuracy(evaluated.exchanges, evaluated.accuracy, evaluated.parts)


class LoggedScalars(Callback):
    """Passes the scalars of each round and of each evaluation to a logger.

    Args:
        logger: the logger, whose run has begun.
        started: when the run began, in seconds since 1970.
    """

    def __init__(self, logger: Logger, started: float) -> None:
        self._logger, self._started = logger, started

    def save(self, facts: dict[str, Any]) -> None:
        """Flush; loggers are given the facts at the start only."""
        self._logger.flush()

    def round(self, ended: FinishedRound) -> None:
        """Write the round's scalars."""
        entry = ended.entry
        scalars = round_scalars(
            samples=entry["num_samples"],
            seconds=ended.seconds,
            local_iterations=ended.local_iterations,
            wait=entry["wait"],
            transfer=entry["transfer"],
            bytes_sent=entry["bytes_sent"],
            bytes_received=entry["bytes_received"],
            logged=entry.get(LOGGED, {}),
        )
        self._logger.write(ended.number, self._started + entry["total_time"], scalars)

    def accuracy(self, evaluated: Evaluated) -> None:
        """Write the metric of a round's weights and its parts, with the time of that round."""
        at = self._started + evaluated.elapsed
        self._logger.write(
            evaluated.exchanges, at, evaluation_scalars(evaluated.metric.name, evaluated.accuracy, evaluated.parts)
        )

    def flush(self) -> None:
        """Have everything written so far."""
        self._logger.flush()

    def close(self) -> None:
        """Write the rest."""
        self._logger.close()


class ProgressLines(Callback):
    """Prints a line for each round and each accuracy.

    Args:
        reporter: prints the lines.
        rank: this worker's rank.
    """

    def __init__(self, reporter: ProgressReporter, rank: int) -> None:
        self._reporter, self._rank = reporter, rank

    def round(self, ended: FinishedRound) -> None:
        """Print the round."""
        evaluated = ended.evaluated
        self._reporter.round(
            Progress(
                rank=self._rank,
                round=ended.entry.get("round", ended.number),
                exchanges=ended.number if "round" in ended.entry else None,
                local_iterations=ended.local_iterations,
                samples_per_second=ended.entry["num_samples"] / ended.seconds,
                wait=ended.entry["wait"],
                elapsed=ended.entry["total_time"],
                accuracy=None if evaluated is None else evaluated.accuracy,
                accuracy_round=None if evaluated is None else evaluated.round,
                **({} if evaluated is None else {"metric": evaluated.metric.name}),
            )
        )

    def accuracy(self, evaluated: Evaluated) -> None:
        """Print the accuracy."""
        self._reporter.accuracy(evaluated.round, evaluated.accuracy, evaluated.metric.name)

    def message(self, text: str) -> None:
        """Print the message."""
        self._reporter.print(text)


def make_callbacks(
    algorithm: "Algorithm",
    rank: int,
    reporter: ProgressReporter,
    logs: RoundLog | None = None,
    reports: "RoundReporter | None" = None,
    started: float = 0.0,
    step: int = 0,
    loggers: Iterable[Logger] = (),
) -> list[Callback]:
    """Return the callbacks of a worker's rounds.

    Args:
        algorithm: the run's algorithm. Runs that switch to asynchronous training have acc.csv and
            loss.csv beside the log files of rank 0.
        rank: this worker's rank.
        reporter: prints progress.
        logs: the log files of this worker; None writes none.
        reports: reports rounds to the state server; None if there is none.
        started: when the run began, in seconds since 1970; 0 in virtual time.
        step: the last step in existing logs that the run continues.
        loggers: get the scalars of rounds and evaluations.
    """
    callbacks: list[Callback] = []
    if logs is not None:
        if algorithm.switches_synchrony and rank == 0:
            callbacks.append(CurveFiles(logs, started, step))
        callbacks.append(LogFiles(logs))
    if reports is not None:
        callbacks.append(StateServerReports(reports))
    callbacks += [LoggedScalars(logger, started) for logger in loggers]
    return [*callbacks, ProgressLines(reporter, rank)]


def _lines_before(text: str, step: int) -> list[str]:
    """Return the rows of an earlier file of this run up to a step."""
    heading, *rows = text.splitlines() or [""]
    if heading != HEADING:
        return []
    complete = [row for row in rows if row.count(",") == HEADING.count(",")]
    return [row for row in complete if int(row.split(",")[2]) <= step]
