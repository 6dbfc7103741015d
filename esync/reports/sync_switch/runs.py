"""Find and read the runs below a folder, and account for those left out."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

from ...runtime.files import EARLIER_PREFIX
from ..discovery import CURVES, RUN_FILE
from .rows import CsvRow, UnusableRunError, read_rows
from .settings import EXPERIMENTS, NOT_COMPARABLE, SETUPS, Setting, corrected, published_setting

_NAME = re.compile(r"Job name:\s*(?P<name>[^,\n]*),\s*SGD:\s*(?P<kind>BSP|ASP)")
_START = re.compile(r"Started training at:\s*(?P<when>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)")
_END = re.compile(
    r"Ended training at:\s*(?P<when>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?),\s*(?P<steps>\d+) steps"
    r"(?:\s*Final loss:\s*(?P<loss>[-+\w.]*?)(?=Job name|\s|$))?"
)

#: Seconds by which a row may lie outside of its segment, because several machines' clocks differ.
SLACK = 60.0


@dataclass(frozen=True)
class LoggedSegment:
    """A segment that was completed; times in seconds since 1970, steps as global steps."""

    name: str
    kind: str  # BSP or ASP
    started: float
    ended: float
    steps: int


def read_job_log(path: Path) -> list[LoggedSegment]:
    """Return the segments in a job log, without those that have no end because of a crash.

    There may be no line break between the segments.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    heads = list(_NAME.finditer(text))
    segments = []
    for head, stop in zip(heads, [*(head.start() for head in heads[1:]), len(text)], strict=True):
        start, end = _START.search(text, head.end(), stop), _END.search(text, head.end(), stop)
        if start and end:
            began, ended = _seconds(start["when"]), _seconds(end["when"])
            segments.append(LoggedSegment(head["name"].strip(), head["kind"], began, ended, int(end["steps"])))
    return segments


def segments_between(segments: Iterable[LoggedSegment], first: float, last: float) -> Sequence[LoggedSegment]:
    """Return the segments of the run whose rows lie between two times.

    Returns nothing if the log does not allow to tell them apart.
    """
    inside = sorted(
        (segment for segment in segments if segment.started >= first - SLACK * 3 and segment.ended <= last + SLACK * 3),
        key=lambda segment: segment.started,
    )
    steps_ascend = all(a.steps < b.steps and a.ended <= b.started for a, b in pairwise(inside))
    if not inside or not steps_ascend or inside[0].started > first + SLACK or inside[-1].ended < last - SLACK:
        return ()
    return inside


def _seconds(when: str) -> float:
    """Parse a time of the machines' clocks, which were set to UTC."""
    return datetime.fromisoformat(when).replace(tzinfo=timezone.utc).timestamp()


ACCURACY, LOSS = CURVES
ACCURACY_PROCESSED, LOSS_PROCESSED = "acc_proc.csv", "loss_proc.csv"
KEEP = "keep"  # of --switch-momentum, the default
SHARE_TOLERANCE = 0.01  # larger differences between the done and the planned share of BSP are remarked on
JOB_LOGS = ("bsp_job.txt", "asp_job.txt")


@dataclass(frozen=True)
class SyncSwitchRun:
    """A run of Sync-Switch.

    Attributes:
        folder: the folder of its files.
        setup: network, data and number of workers.
        setting: its setting.
        accuracy: accuracy of the last evaluation, not the best; 0 if the run has diverged.
        best: accuracy of the best evaluation.
        time: seconds of training, without the gaps of switches.
        span: seconds from the first to the last row of loss.csv, with the gaps.
        gap: seconds without training at switches; None if unknown.
        diverged: whether the loss became infinite or NaN.
        curve: pairs of seconds of training, without the gaps of switches, and the accuracy then.
    """

    folder: Path
    setup: str
    setting: Setting
    accuracy: float
    best: float
    time: float
    span: float
    gap: float | None
    diverged: bool = False
    curve: tuple[tuple[float, float], ...] = ()

    def time_to(self, target: float) -> float | None:
        """Return the seconds until the first evaluation with an accuracy of `target` or more.

        None if there is none, or if the run has diverged.
        """
        if self.diverged:
            return None
        return next((seconds for seconds, accuracy in self.curve if accuracy >= target), None)


@dataclass
class Findings:
    """Runs found below a folder, and those left out."""

    runs: list[SyncSwitchRun] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # folder → why
    remarks: list[str] = field(default_factory=list)


def find_runs(base: Path) -> Findings:
    """Read every run below `base`: every folder with an acc.csv or a loss.csv.

    Raises:
        OSError: a folder or a file cannot be read.
    """
    findings = Findings()
    segments: list[LoggedSegment] = []
    for parent in (base, *list(base.resolve().parents)[:2]):
        logs = [parent / name for name in JOB_LOGS if (parent / name).is_file()]
        if logs:
            segments = [segment for log in logs for segment in read_job_log(log)]
            break
    candidates = {path.parent for path in base.rglob("*.csv")}
    folders = sorted(folder for folder in candidates if not folder.name.startswith(EARLIER_PREFIX))
    for folder in folders:
        try:
            findings.runs.append(_read(folder, segments, findings.remarks))
        except UnusableRunError as reason:
            findings.skipped[str(folder)] = str(reason)
    return findings


def _read(folder: Path, segments: Sequence[LoggedSegment], remarks: list[str]) -> SyncSwitchRun:
    if not (folder / ACCURACY).is_file() or not (folder / LOSS).is_file():
        present = ", ".join(sorted(path.name for path in folder.glob("*.csv"))[:3])
        raise UnusableRunError(f"no {ACCURACY} and {LOSS} in it, but {present}")
    if (folder / RUN_FILE).is_file():
        return _run_of_esync(folder, remarks)
    group, name = folder.resolve().parent.name, folder.name
    if reason := NOT_COMPARABLE.get((group, name)) or EXPERIMENTS.get(group):
        raise UnusableRunError(reason)
    setting = published_setting(group, name)
    if setting is None:
        raise UnusableRunError(f"no {RUN_FILE} in it, and its name is not that of a published run")
    accuracies, losses = read_rows(folder / ACCURACY), read_rows(folder / LOSS)
    parts = segments_between(segments, losses[0].wall, losses[-1].wall)
    last = max(losses[-1].step, accuracies[-1].step, parts[-1].steps if parts else 0)
    setting, remark = corrected(setting, SETUPS[group], last)
    if remark:
        remarks.append(f"{folder}: {remark}")
    gap = sum(later.started - earlier.ended for earlier, later in pairwise(parts)) if parts else None
    span = losses[-1].wall - losses[0].wall
    time, removed = _processed_time(folder, losses)
    if time is None:
        time = _seconds_of_training(parts[-1].ended if parts else losses[-1].wall, losses, parts)
        source = "the job log" if parts else "loss.csv alone, with the gap of any switch in it"
        remarks.append(f"{folder}: no {LOSS_PROCESSED}; its time is from {source}")
    elif len(setting.order) > 1 and removed is not None and removed < 1:
        remarks.append(f"{folder}: the Time in its {LOSS_PROCESSED} still holds the gap of the switch")
    if len(setting.order) == 1:
        gap = 0.0
    elif gap is None:
        gap = removed
    curve = _processed_curve(folder, losses) or [
        (_seconds_of_training(row.wall, losses, parts), row.value) for row in accuracies
    ]
    return _run(folder, SETUPS[group].title, setting, accuracies, losses, time, span, gap, curve)


def _run_of_esync(folder: Path, remarks: list[str]) -> SyncSwitchRun:
    """Return a run of this project, which its run.json describes."""
    try:
        facts = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        order, share = str(facts["switch_order"]), _share(facts["bsp_share"])
        done = None if facts.get("bsp_share_done") is None else _share(facts["bsp_share_done"])
        title = f"{facts['dataset']}, {facts['network']}, {int(facts['workers'])} workers"
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UnusableRunError(f"its {RUN_FILE} is not that of a run with --mode sync-switch") from None
    if done is not None and abs(done - share) > SHARE_TOLERANCE:
        remarks.append(f"{folder}: {share:.2%} of the samples were planned as BSP, {done:.2%} were trained so")
    scenario = facts.get("stragglers") or ""
    policy = str(facts.get("online_policy") or "none") if scenario else ""
    accuracies, losses = read_rows(folder / ACCURACY), read_rows(folder / LOSS)
    order = {0.0: "0", 1.0: "1"}.get(share, order)  # run.json of some versions has the order as it was given
    momentum = facts.get("switch_momentum") or KEEP
    momentum = "" if momentum == KEEP or order in ("0", "1") else str(momentum)
    setting = Setting(order, round(share, 4), policy, str(scenario), momentum)

    def seconds(row: CsvRow) -> float:
        return row.time if row.time is not None else row.wall - losses[0].wall

    curve = [(seconds(row), row.value) for row in accuracies]
    # The loss is rank 0's, and not that of every batch: the last evaluation may be of a later model.
    time = max(seconds(losses[-1]), seconds(accuracies[-1]))
    return _run(folder, title, setting, accuracies, losses, time, time, 0.0, curve)


def _share(value: object) -> float:
    """Return a share.

    Raises:
        ValueError, TypeError: it is not a number from 0 to 1.
    """
    share = float(value)  # type: ignore[arg-type]
    if not 0 <= share <= 1:
        raise ValueError(f"{value!r} is not a share")
    return share


def _run(
    folder: Path,
    setup: str,
    setting: Setting,
    accuracies: list[CsvRow],
    losses: list[CsvRow],
    time: float,
    span: float,
    gap: float | None,
    curve: Sequence[tuple[float, float]],
) -> SyncSwitchRun:
    for row in accuracies:
        if math.isfinite(row.value) and not 0 <= row.value <= 1:
            raise UnusableRunError(f"an accuracy of {row.value:g} in its {ACCURACY}, expected 0 to 1")
    diverged = not all(math.isfinite(row.value) for row in (*losses, *accuracies))
    last = 0.0 if diverged else accuracies[-1].value
    best = max((row.value for row in accuracies if math.isfinite(row.value)), default=0.0)
    return SyncSwitchRun(folder, setup, setting, last, best, time, span, gap, diverged, tuple(curve))


def _processed_time(folder: Path, losses: list[CsvRow]) -> tuple[float | None, float | None]:
    """Return the last Time of loss_proc.csv, and the seconds of gaps left out of it.

    Either is None if unknown.
    """
    path = folder / LOSS_PROCESSED
    if not path.is_file():
        return None, None
    rows = read_rows(path)
    if rows[-1].time is None:
        return None, None
    walls = {row.step: row.wall for row in losses}
    timed = [row for row in rows if row.step in walls and row.time is not None]
    removed = walls[timed[-1].step] - losses[0].wall - (timed[-1].time or 0.0) if timed else None
    return rows[-1].time, None if removed is None else max(0.0, removed)


def _processed_curve(folder: Path, losses: list[CsvRow]) -> list[tuple[float, float]]:
    """Return the rows of acc_proc.csv as seconds since the first loss, and accuracy.

    Its own times count from the first evaluation. Returns nothing if it does not have them.
    """
    path = folder / ACCURACY_PROCESSED
    rows = read_rows(path) if path.is_file() else []
    begin = rows[0].wall - losses[0].wall if rows else 0.0
    return [(begin + row.time, row.value) for row in rows if row.time is not None]


def _seconds_of_training(wall: float, losses: list[CsvRow], parts: Sequence[LoggedSegment]) -> float:
    """Return the seconds of training up to a wall time, without the gaps before it.

    They are computed in the same way as by the authors' own tool.
    """
    time = wall - losses[0].wall
    for earlier, later in pairwise(parts):
        resumed = next((row.wall for row in losses if row.wall >= later.started), later.started)
        time -= max(0.0, min(resumed, wall) - earlier.ended)
    return time
