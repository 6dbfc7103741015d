"""Report at the end of a job: its figures, computed from the logs, or why it failed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..loggers import attach
from ..reports.discovery import find_devices, moved_aside
from ..reports.job_events import OUTCOME_FILE, REPORT_FILE
from ..reports.metrics_table import RunFigures
from ..reports.modes import BASELINE, BASELINE_LABEL, STANDALONE, STANDALONE_LABEL
from ..reports.runs import NoRunError, load_network, load_run
from ..reports.speedups import on_same_cluster, over_fastest, speedup
from ..runtime.evaluation_result import lowest_recall
from ..runtime.files import write_json
from ..runtime.terminal import clock
from ..training.round_log import RUN_FILE, loggers_of
from .folders import PROCESSES
from .outcome import JobOutcome
from .spec import LaunchPlan


def read_figures(plan: LaunchPlan) -> RunFigures | None:
    """Return the figures of the job that has just ended, and write its summary.

    Returns None if no round was logged.
    """
    try:
        return load_run(plan.folder_here, plan.options.target_accuracy).figures
    except NoRunError:
        return None


def earlier_logs(plan: LaunchPlan) -> list[str]:
    """Return a line about logs of earlier runs that the figures do not include, if there are any."""
    note = moved_aside(find_devices(plan.folder_here)[0])
    return [note] if note else []


def success(figures: RunFigures | None, plan: LaunchPlan, outcome: JobOutcome) -> list[str]:
    """Return the lines that report the results of a finished job."""
    if figures is None:
        if plan.program is None:
            return [f"done in {clock(outcome.seconds)}, but no round has been logged in {plan.folder_here}"]
        return [
            f"done in {clock(outcome.seconds)}; the program has logged no rounds in {plan.folder_here}, where esync.Run"
            " logs unless the program gives it a folder",
            *_lost_processes(outcome),
            f"output of the processes: {plan.folder_here / PROCESSES}",
        ]
    lines = [f"done: {figures.mode.label}, {figures.rounds} rounds in {clock(figures.total_time)}"]
    speed = [figures.bracketed(f"{figures.throughput:.1f} samples/s")] if figures.throughput else []
    if figures.efficiency is not None:
        speed.append(figures.bracketed(f"{figures.efficiency:.0%} of the devices' speed"))
    if alone := over_fastest(figures.throughput, {device.name: device.speed for device in figures.devices}):
        speed.append(figures.bracketed(str(alone)))
    lines.append(", ".join(speed))
    if figures.final_accuracy is not None:
        reached = figures.time_to_target
        when = f"; {figures.target:g} after {clock(reached)}" if reached is not None else ""
        recall = f"; {text}" if (text := lowest_recall(figures.final_parts)) else ""
        lines.append(f"{figures.metric.label} {figures.metric.text(figures.final_accuracy)}{when}{recall}")
        lines += _speedups(figures, plan)
    lines += [f"overruns: {figures.overruns}"] if figures.overruns else []
    if figures.invalid:
        lines.append("too many of them: these figures are not valid; use larger step times, or fewer workers")
    lines += _lost_processes(outcome)
    lines.append(f"logs: {plan.folder_here}, output of the processes: {plan.folder_here / PROCESSES}")
    return [line for line in lines if line]


def _speedups(figures: RunFigures, plan: LaunchPlan) -> list[str]:
    """Return a line about each baseline that has been run on the same cluster, and logged beside it."""
    try:
        references, _ = load_network(plan.folder_here.parent, (STANDALONE, BASELINE))
    except OSError:  # the folder cannot be listed; the job's own figures do not depend on it
        return []
    others = [run.with_target(figures.target).figures for run in references if run.folder.name != figures.mode.folder]
    same = [other for other in others if on_same_cluster(figures, other)]
    lines = []
    for name, label in ((STANDALONE, f"{STANDALONE_LABEL}, the fastest device alone"), (BASELINE, BASELINE_LABEL)):
        estimate = speedup(figures, same, name)
        if estimate.value is not None and figures.mode.name != name:
            goal = f"{figures.metric.label} {figures.target:g}"
            lines.append(f"{estimate.value:.2f} times as fast as {label}, to {goal}")
    return lines


def _lost_processes(outcome: JobOutcome) -> list[str]:
    """Return lines about the processes that were replaced, and the workers that were lost."""
    lines = []
    for heading, counted in {
        "replaced after its death": True,
        "replaced after it had lost its connection": False,
    }.items():
        counts = Counter(replacement.name for replacement in outcome.replacements if replacement.counted is counted)
        times = {1: "once", 2: "twice"}
        replaced = [f"{name} {times.get(count, f'{count} times')}" for name, count in sorted(counts.items())]
        lines += [f"{heading}: {', '.join(replaced)}"] if replaced else []
    return [*lines, *([f"lost: {', '.join(outcome.lost)}; the others went on"] if outcome.lost else [])]


def write_page(plan: LaunchPlan, outcome: JobOutcome, figures: RunFigures | None) -> str:
    """Write `outcome.json` to the run's folder and, if the job has figures, `report.html`.

    Errors are not failures of the job: they are returned.

    Returns:
        A line that says where the page is, or why it could not be written; "" without figures.
    """
    page = plan.folder_here / REPORT_FILE
    try:
        write_outcome(plan.folder_here / OUTCOME_FILE, plan, outcome, figures)
        if figures is None:
            return ""
        from ..reports.comparison import compare
        from ..reports.report import write_report  # imports Matplotlib, which takes a moment

        write_report(compare([plan.folder_here], plan.options.target_accuracy), page)
    except Exception as error:  # the training is done, whatever fails here
        reason = (
            f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error) or type(error).__name__
        )
        return f"{page} could not be written: {reason}"
    return f"report: {page}"


def logged_before(plan: LaunchPlan) -> dict[Path, bytes]:
    """Return the run.json files that are there before a job: unchanged after it, they are of an earlier one."""
    return {run: run.read_bytes() for run in plan.folder_here.glob(f"*/*/{RUN_FILE}")}


def attach_files(plan: LaunchPlan, description: Path, outcome: JobOutcome, before: Mapping[Path, bytes]) -> list[str]:
    """Add the description and the report to where rank 0 has logged the run; return a line for each failure."""
    written = [run for run in plan.folder_here.glob(f"*/*/{RUN_FILE}") if before.get(run) != run.read_bytes()]
    logged = [references for run in written if (references := loggers_of(run.parent))]
    files = [description, plan.folder_here / OUTCOME_FILE, plan.folder_here / REPORT_FILE]
    present = [file for file in files if file.exists()]
    error = "" if outcome.ok else "; ".join(failure(outcome))
    return attach(logged[0], "report", present, error) if logged else []


def failure(outcome: JobOutcome) -> list[str]:
    """Return the lines that say why a job has failed.

    The first failure is shown with the end of its output, the others with how they ended.
    """
    if outcome.preempted and not outcome.failures:
        return [preempted_by(outcome.preempted)]
    if outcome.interrupted:
        return [f"ended by {outcome.interrupted}; all processes of the job have been ended"]
    first, *others = outcome.failures
    lines = [f"{first.name} ({first.where}) {first.how}; the end of {first.log}:"]
    lines += [f"    {line}" for line in first.last_lines or ("(it printed nothing)",)]
    alike: dict[str, list[str]] = {}
    for other in others:
        last = f": {other.last_lines[-1]}" if other.last_lines else ""
        alike.setdefault(f"{other.how}{last}", []).append(other.name)
    return [*lines, *(f"{', '.join(names)} {how}" for how, names in alike.items())]


def preempted_by(signal: str) -> str:
    """Return the line about a job that has been preempted."""
    return f"preempted by {signal}: the same command with --resume goes on"


def write_outcome(path: Path, plan: LaunchPlan, outcome: JobOutcome, figures: RunFigures | None) -> None:
    """Write the file of `--json`.

    Raises:
        OSError: it cannot be written.
    """
    content: dict[str, Any] = {
        "done": outcome.ok,
        "began": outcome.began,
        "seconds": outcome.seconds,
        "interrupted": outcome.interrupted or None,
        "preempted": outcome.preempted or None,
        "failures": [{**asdict(failure), "log": str(failure.log)} for failure in outcome.failures],
        "exit_codes": outcome.exit_codes,
        "replacements": [asdict(replacement) for replacement in outcome.replacements],
        "lost": outcome.lost,
        "lost_hosts": outcome.lost_hosts,
        "logs": str(plan.folder_here),
        "network": plan.trained,
        "program": list(plan.program.words) if plan.program else None,
        "mode": plan.mode_folder.name,
        "figures": None,
    }
    if figures is not None:
        content["figures"] = {
            **figures.as_json(),
            "metric": asdict(figures.metric),
            "final_accuracy": figures.final_accuracy,
            "final_parts": figures.final_parts,
            "devices": [asdict(device) for device in figures.devices],
        }
    write_json(path, content)
