"""Group the runs of one setting: mean accuracy and time, their spread, the speedup over BSP."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from ... import config
from .runs import SyncSwitchRun
from .settings import Setting


@dataclass(frozen=True)
class Spread:
    """A mean with the standard deviation of the population."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        """Return the spread of at least one value."""
        return cls(fmean(values), pstdev(values))


@dataclass(frozen=True)
class RunGroup:
    """Runs of one setting in one setup.

    Attributes:
        setup: network, data and number of workers.
        setting: the setting of all these runs.
        runs: the runs.
        accuracy: accuracy of the last evaluations; diverged runs count as 0.
        best: mean accuracy of the best evaluations.
        time: seconds of training, without gaps.
        span: mean seconds from the first to the last row of loss.csv, with gaps.
        gap: mean seconds without training at switches; None if unknown.
        relative: time ÷ that of the reference in the same setup and scenario; None without one.
        speedup: its inverse.
        speedup_with_gap: the reference's time ÷ (time + gap).
        reference: label of the setting that the time is compared with; "" if there is none.
        target: accuracy until which time is taken; None if none was given and there is no
            reference.
        times_to_target: seconds of each run until that accuracy, of those that reach it.
    """

    setup: str
    setting: Setting
    runs: tuple[SyncSwitchRun, ...]
    accuracy: Spread
    best: float
    time: Spread
    span: float
    gap: float | None
    relative: float | None
    speedup: float | None
    speedup_with_gap: float | None
    reference: str
    target: float | None
    times_to_target: tuple[float, ...]

    @property
    def to_target(self) -> Spread | None:
        """Seconds until the target accuracy, of those runs that reach it; None if none does."""
        return Spread.of(list(self.times_to_target)) if self.times_to_target else None

    @property
    def diverged(self) -> int:
        """Number of these runs that have diverged."""
        return sum(run.diverged for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        """Return the group for --json."""
        return {
            "setup": self.setup,
            "setting": self.setting.label,
            "switch_order": self.setting.order,
            "bsp_share": self.setting.share,
            "momentum": self.setting.momentum,
            "policy": self.setting.policy,
            "stragglers": self.setting.scenario,
            "runs": [
                {
                    "folder": str(run.folder),
                    "accuracy": run.accuracy,
                    "best": run.best,
                    "time": run.time,
                    "span": run.span,
                    "gap": run.gap,
                    "diverged": run.diverged,
                    "time_to_target": None if self.target is None else run.time_to(self.target),
                }
                for run in self.runs
            ],
            "diverged": self.diverged,
            "accuracy": self.accuracy.mean,
            "accuracy_deviation": self.accuracy.deviation,
            "best": self.best,
            "time": self.time.mean,
            "time_deviation": self.time.deviation,
            "span": self.span,
            "gap": self.gap,
            "relative_time": self.relative,
            "speedup": self.speedup,
            "speedup_with_gap": self.speedup_with_gap,
            "compared_with": self.reference,
            "target": self.target,
            "reached_target": len(self.times_to_target),
            "time_to_target": self.to_target.mean if self.to_target else None,
            "time_to_target_deviation": self.to_target.deviation if self.to_target else None,
        }


def group(
    runs: Iterable[SyncSwitchRun], target: float | None = None, beta: float = config.SEARCH_BETA
) -> list[RunGroup]:
    """Return the groups, setup by setup, in the order of their settings.

    Args:
        runs: the runs to group.
        target: accuracy until which time is taken; None: the mean final accuracy of the setting
            that a group is compared with, less `beta`.
        beta: accuracy that may be lost.
    """
    members: dict[tuple[str, Setting], list[SyncSwitchRun]] = defaultdict(list)
    for run in runs:
        members[run.setup, run.setting].append(run)
    ordered = sorted(members.items(), key=lambda item: (item[0][0], item[0][1].place))
    return [_group(setup, setting, chosen, members, target, beta) for (setup, setting), chosen in ordered]


def _group(
    setup: str,
    setting: Setting,
    runs: list[SyncSwitchRun],
    members: dict[tuple[str, Setting], list[SyncSwitchRun]],
    target: float | None,
    beta: float,
) -> RunGroup:
    time = Spread.of([run.time for run in runs])
    gaps = [run.gap for run in runs if run.gap is not None]
    gap = fmean(gaps) if gaps else None
    reference, compared = _reference(setup, setting, members)
    base = fmean([run.time for run in compared]) if compared else None
    if target is None and compared:
        target = fmean([run.accuracy for run in compared]) - beta
    reached = [run.time_to(target) for run in runs] if target is not None else []
    return RunGroup(
        setup,
        setting,
        tuple(runs),
        Spread.of([run.accuracy for run in runs]),
        fmean([run.best for run in runs]),
        time,
        fmean([run.span for run in runs]),
        gap,
        time.mean / base if base else None,
        base / time.mean if base and time.mean else None,
        base / (time.mean + gap) if base and gap is not None and time.mean + gap else None,
        reference,
        target,
        tuple(seconds for seconds in reached if seconds is not None),
    )


def _reference(
    setup: str, setting: Setting, members: dict[tuple[str, Setting], list[SyncSwitchRun]]
) -> tuple[str, list[SyncSwitchRun]]:
    """Return label and runs of the setting with which a setting is compared; none if there is none.

    It is BSP or, under stragglers, the same setting without a policy.
    """
    for (other, candidate), runs in members.items():
        if other != setup or candidate.scenario != setting.scenario:
            continue
        if (candidate.policy == "none") if setting.policy else candidate.order == "1":
            return candidate.label, runs
    return "", []
