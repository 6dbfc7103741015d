"""Make `report.html` from the history: one run, or a comparison of several runs.

The history contains the workers' reports, but neither the options of a run nor its algorithm. Each run
is therefore a separate group, labelled with its job and its start.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import config
from ..algorithms.styles import spare_style
from ..coordination.coordinator import InvalidError
from ..reports.comparison import compare_runs
from ..reports.modes import Mode
from ..reports.report_page.build import build_report
from ..reports.report_page.page import content_security_policy, report_html
from ..reports.runs import LoggedRun
from ..reports.summary_file import DeviceSummary, RunInfo, Summary
from ..runtime.metric import Metric
from ..runtime.terminal import clock
from . import curves
from .models import Event, Round, Run
from .responses import NotFoundError

__all__ = ["content_security_policy", "page"]

_EVENTS = 200


class ReportedDevice(DeviceSummary):
    """The reported rounds of a worker. Short rounds are reported together, under the number of the last one."""

    @property
    def missing_rounds(self) -> int:
        """Always 0: short rounds are reported together with the next one, so gaps in the numbers are not losses."""
        return 0


def page(keys: Sequence[str]) -> str:
    """Return the report of the runs with these ids.

    Raises:
        NotFoundError: a run does not exist, or has no reports.
        InvalidError: the runs have too many rounds for a report.
    """
    runs_by_key = {run.key: run for run in Run.objects.filter(key__in=keys)}
    for key in keys:
        if key not in runs_by_key:
            raise NotFoundError(f"the history has no run {key!r}")
    rows = [runs_by_key[key] for key in dict.fromkeys(keys)]
    number = Round.objects.filter(run__in=[row.pk for row in rows]).count()
    if number > config.HISTORY_REPORT_ROUNDS:
        raise InvalidError(
            f"these runs have {number} rounds, and a report from the history may have {config.HISTORY_REPORT_ROUNDS}: "
            "choose fewer runs, or make it from the log files with esync report"
        )
    labels = _labels(rows)
    runs = [_logged(row, label) for row, label in zip(rows, labels, strict=True)]
    events = {run.folder: _events(row) for row, run in zip(rows, runs, strict=True)}
    created = time.strftime("by a state server on %d %B %Y at %H:%M")
    return report_html(build_report(compare_runs(runs, labels), created, events))


def _labels(rows: Sequence[Any]) -> list[str]:
    """Return the names of the jobs, with their start times if a name is ambiguous."""
    jobs = [row.job for row in rows]
    labels: list[str] = []
    for row in rows:
        label = row.job
        if jobs.count(row.job) > 1:
            label += time.strftime(", %d %b %H:%M:%S", time.localtime(row.started))
        labels.append(label if label not in labels else f"{label} ({row.key[:6]})")
    return labels


def _logged(row: Any, label: str) -> LoggedRun:
    """Return a run as if it had been loaded from its logs."""
    metric = Metric(row.metric, row.goal)
    workers: dict[int, list[dict[str, Any]]] = {}
    for values in Round.objects.filter(run=row.pk).order_by("rank", "round").values():
        workers.setdefault(values["rank"], []).append(values)
    if not workers:
        raise NotFoundError(f"nothing has been reported in the run {row.key!r} yet")
    parts = {entry["accuracy_round"]: entry["parts"] for rounds in workers.values() for entry in rounds}
    evaluations = [
        {**evaluation, "parts": parts.get(evaluation["round"], {})}
        for evaluation in curves.curves(row.pk, config.HISTORY_PAGE)["accuracy"]
    ]
    summary: Summary = {}
    for rank, rounds in workers.items():
        last = rounds[-1]
        group = summary.setdefault(last["host"] or "unknown host", {})
        name = last["device"] if last["device"] not in group else f"{last['device']} (worker {rank})"
        group[name] = _device(row, metric, rank, rounds, evaluations if rank == min(workers) else [])
    mode = Mode(row.job, "", label, spare_style(row.job))
    return LoggedRun(Path(label), mode, summary)


def _device(
    row: Any, metric: Metric, rank: int, rounds: list[dict[str, Any]], evaluations: list[dict[str, Any]]
) -> ReportedDevice:
    ends = [max(0.0, entry["finished"] - row.started) for entry in rounds]
    info = RunInfo.model_validate({"network": "", "rank": rank, "finished": row.ended is not None, "metric": metric})
    values = [evaluation["accuracy"] for evaluation in evaluations]
    return ReportedDevice(
        metric=metric,
        accuracy_list=values,
        accuracy_exact_list=values,
        parts={
            name: [evaluation["parts"].get(name) for evaluation in evaluations]
            for name in dict.fromkeys(name for evaluation in evaluations for name in evaluation["parts"])
        },
        accuracy_rounds=[evaluation["round"] for evaluation in evaluations],
        accuracy_time_list=[max(0.0, evaluation["at"]) for evaluation in evaluations],
        num_samples_list=[entry["samples"] for entry in rounds],
        self_iters_list=[entry["local_iterations"] for entry in rounds],
        elapsed_time_list=[round(end) for end in ends],
        aggregate_time_list=[entry["wait"] + entry["exchange"] for entry in rounds],
        rounds_list=[entry["round"] for entry in rounds],
        run_rounds_list=[entry["run_round"] for entry in rounds if entry["run_round"] is not None],
        computing_time_list=[entry["compute"] for entry in rounds],
        bytes_sent_list=[entry["bytes_sent"] for entry in rounds],
        bytes_received_list=[entry["bytes_received"] for entry in rounds],
        wait_list=[entry["wait"] for entry in rounds],
        transfer_list=[entry["exchange"] for entry in rounds],
        total_time_list=ends,
        logged={name: [entry["logged"].get(name) for entry in rounds] for name in row.logged},
        total_time=max(ends),
        iterations=sum(entry["local_iterations"] for entry in rounds),
        run=info,
    )


def _events(row: Any) -> list[tuple[str, str]]:
    """Return the events of a run in order, the newest ones if there are many."""
    events = list(Event.objects.filter(run=row.pk).order_by("-pk")[:_EVENTS])[::-1]
    return [(clock(max(0.0, event.at - row.started)), _words(event)) for event in events]


def _words(event: Any) -> str:
    """Return an event in words, as the dashboard's history shows it."""
    if event.kind == "slowest":
        return f"worker {event.rank} is the slowest from round {event.round} on: {event.text}"
    if event.kind == "begin":
        return f"begun with {event.text}"
    if event.kind == "end":
        return f"ended: {event.text}"
    worker = "" if event.rank is None else f"worker {event.rank}"
    return ", ".join(filter(None, [worker, "" if event.round is None else f"round {event.round}", event.text]))
