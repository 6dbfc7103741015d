"""Status of a running job, a row for each worker and totals, as one line or as a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Column

from ..runtime.metric import ACCURACY, Metric
from ..runtime.progress import Progress
from ..runtime.terminal import TerminalTable, clock, right

#: Largest number of workers whose local iterations a line lists one by one.
LISTED = 12
STYLES = {
    **dict.fromkeys(("failed", "lost", "away"), "red"),
    **dict.fromkeys(("starting", "waiting", "ended"), "dim"),
    "done": "green",
}


@dataclass(frozen=True)
class WorkerRow:
    """Status of one worker.

    Attributes:
        name: its process's name.
        host: where it runs.
        device: what it computes on.
        state: waiting (for the state server), starting, training, away (its host does not answer),
            done, failed, lost (the others go on without it) or ended (by launch).
        progress: its last report, None before the first.
    """

    name: str
    host: str
    device: str
    state: str
    progress: Progress | None = None


@dataclass(frozen=True)
class JobTotals:
    """Totals of all workers.

    Attributes:
        round: the newest finished round, 0 before the first.
        samples_per_second: sum of the workers' throughputs in their last rounds.
        accuracy: the newest test accuracy, or value of another metric; None before the first.
        accuracy_round: the round whose weights were evaluated.
        metric: name of the metric.
    """

    round: int = 0
    samples_per_second: float = 0.0
    accuracy: float | None = None
    accuracy_round: int = 0
    metric: str = ACCURACY


def totals(rows: Sequence[WorkerRow]) -> JobTotals:
    """Return the totals over all workers that are neither lost nor away."""
    reports = [row.progress for row in rows if row.progress and row.state not in ("lost", "away")]
    if not reports:
        return JobTotals()
    evaluated = [report for report in reports if report.accuracy is not None]
    newest = max(evaluated, key=lambda report: report.accuracy_round or 0, default=None)
    return JobTotals(
        max(report.round for report in reports),
        sum(report.samples_per_second for report in reports),
        newest.accuracy if newest else None,
        (newest.accuracy_round or 0) if newest else 0,
        newest.metric if newest else ACCURACY,
    )


def line(rows: Sequence[WorkerRow], seconds: float) -> str:
    """Return the status of the job as one line."""
    states = [row.state for row in rows]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    total = totals(rows)
    parts = [clock(seconds), f"workers: {counts}"]
    if total.round:
        parts += [f"round {total.round}", f"{total.samples_per_second:.1f} samples/s"]
        iterations = [row.progress.local_iterations for row in rows if row.progress]
        if max(iterations) > 1:
            several = " ".join(map(str, iterations))
            parts.append(
                f"local iterations {several if len(rows) <= LISTED else f'{min(iterations)} to {max(iterations)}'}"
            )
    if total.accuracy is not None:
        parts.append(f"{total.metric} {Metric(total.metric).text(total.accuracy)} (round {total.accuracy_round})")
    return "  ".join(parts)


def table(rows: Sequence[WorkerRow], seconds: float, title: str) -> TerminalTable:
    """Return the status of the job as a table."""
    total = totals(rows)
    drawn = TerminalTable(
        right("rank", str(len(rows))),
        Column("worker", "workers", no_wrap=True),
        Column("state", no_wrap=True),
        right("round", str(total.round or "")),
        right("local"),  # local iterations in that round
        right("samples/s", f"{total.samples_per_second:.1f}" if total.round else ""),
        right("wait s"),
        Column(total.metric, _value(total.metric, total.accuracy, total.accuracy_round), no_wrap=True),
        right("time", clock(seconds)),
        title=title,
        footer=True,
    )
    for row in rows:
        report = row.progress
        rank, cells = "", [""] * 6
        if report is not None:
            rank = str(report.rank)
            cells = [
                str(report.round),
                str(report.local_iterations),
                f"{report.samples_per_second:.1f}",
                f"{report.wait:.3f}",
                _value(report.metric, report.accuracy, report.accuracy_round),
                clock(report.elapsed),
            ]
        drawn.add(rank, f"{row.host}/{row.device}", row.state, *cells, style=STYLES.get(row.state))
    return drawn


def _value(metric: str, value: float | None, number: int | None) -> str:
    return "" if value is None else f"{Metric(metric).text(value)} ({number})"  # of the weights of that round
