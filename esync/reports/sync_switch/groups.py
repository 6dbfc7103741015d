"""Group the runs of one setting: mean accuracy and time, their spread, and the speedup over BSP."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from .runs import SyncSwitchRun
from .settings import Setting


@dataclass(frozen=True)
class Spread:
    """A mean, and the standard deviation of the population."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        """Of at least one value."""
        return cls(fmean(values), pstdev(values))


@dataclass(frozen=True)
class RunGroup:
    """Runs of one setting in one setup.

    Attributes:
        accuracy: of the last evaluations; diverged runs count as 0.
        best: mean accuracy of the best evaluations.
        time: seconds without gaps.
        span: mean seconds from the first to the last row of loss.csv, with gaps.
        gap: mean seconds without training at switches; None where nothing tells.
        relative: time ÷ that of BSP in the same setup (and scenario); None where there is no BSP
            run.
        speedup: its inverse.
        speedup_with_gap: BSP's time ÷ (time + gap).
        reference: what the time was compared with; "" where with nothing.
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

    @property
    def diverged(self) -> int:
        """How many of the runs."""
        return sum(run.diverged for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return {
            "setup": self.setup,
            "setting": self.setting.label,
            "switch_order": self.setting.order,
            "bsp_share": self.setting.share,
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
        }


def group(runs: Iterable[SyncSwitchRun]) -> list[RunGroup]:
    """Return the groups, setup by setup, in the order of their settings."""
    members: dict[tuple[str, Setting], list[SyncSwitchRun]] = defaultdict(list)
    for run in runs:
        members[run.setup, run.setting].append(run)
    ordered = sorted(members.items(), key=lambda item: (item[0][0], item[0][1].place))
    return [_group(setup, setting, chosen, members) for (setup, setting), chosen in ordered]


def _group(
    setup: str, setting: Setting, runs: list[SyncSwitchRun], members: dict[tuple[str, Setting], list[SyncSwitchRun]]
) -> RunGroup:
    time = Spread.of([run.time for run in runs])
    gaps = [run.gap for run in runs if run.gap is not None]
    gap = fmean(gaps) if gaps else None
    base, reference = _reference(setup, setting, members)
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
    )


def _reference(
    setup: str, setting: Setting, members: dict[tuple[str, Setting], list[SyncSwitchRun]]
) -> tuple[float | None, str]:
    """Mean seconds of what a setting is compared with: BSP, or under stragglers the same without a policy."""
    for (other, candidate), runs in members.items():
        if other != setup or candidate.scenario != setting.scenario:
            continue
        if (candidate.policy == "none") if setting.policy else candidate.order == "1":
            return fmean([run.time for run in runs]), candidate.label
    return None, ""
