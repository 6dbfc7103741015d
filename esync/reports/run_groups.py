"""Groups of runs that differ only in their seeds, their means, and the differences between groups."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..runtime import run_names
from ..runtime.metric import Metric
from ..runtime.terminal import UNKNOWN
from . import estimates
from .estimates import Difference, Estimate, MeanCurve
from .metrics_table import DeviceFigures, RunFigures
from .modes import NON_IID_LABEL, Mode
from .runs import LoggedRun
from .speedups import Speedup, speedup


@dataclass(frozen=True)
class Quantity:
    """A figure by which runs are compared.

    Attributes:
        key: its name in `RunFigures`, in JSON and in CSV.
        heading: its name in tables, in which `{target}` stands for the value of the target.
        form: format of its values.
        scale: factor for printed values.
        unit: unit after printed values.
    """

    key: str
    heading: str
    form: str
    scale: float = 1.0
    unit: str = ""

    def of(self, figures: RunFigures) -> float | None:
        """Return the figure of a run; None if it is unknown."""
        value: float | None = getattr(figures, self.key)
        return value

    def text(self, value: float, sign: bool = False) -> str:
        """Format a value, without its unit."""
        return format(value * self.scale, f"{'+' if sign else ''}{self.form}")

    def mean_text(self, estimate: Estimate) -> str:
        """Format a mean with its standard deviation and its unit."""
        spread = f" ± {self.text(estimate.sd)}" if estimate.sd is not None else ""
        return f"{self.text(estimate.mean)}{spread}{self.unit}"

    def interval_text(self, estimate: Estimate | Difference, sign: bool = False) -> str:
        """Format an interval, without its unit; "" if there is none."""
        if estimate.low is None or estimate.high is None:
            return ""
        return f"[{self.text(estimate.low, sign)}, {self.text(estimate.high, sign)}]"


TIME = Quantity("time_to_target", "time to {target}", ",.1f", unit=" s")
FINAL = Quantity("final_accuracy", "final {metric}", ".4g")
FINAL_ACCURACY = replace(FINAL, form=".4f")
MIN_RECALL = Quantity("min_recall", "min recall", ".4f")
MEAN_RECALL = Quantity("mean_recall", "mean recall", ".4f")
THROUGHPUT = Quantity("throughput", "samples/s", ",.1f")
EFFICIENCY = Quantity("efficiency", "efficiency", ".1f", 100.0, " %")
TRAFFIC = Quantity("bytes_per_second", "MB/s", ",.2f", 1e-6)


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only.

    Attributes:
        label: its name in tables and figures.
        runs: the runs.
    """

    label: str
    runs: tuple[LoggedRun, ...]

    @property
    def mode(self) -> Mode:
        """The algorithm of its runs."""
        return self.runs[0].mode

    @property
    def name(self) -> str:
        """The common name of its runs, without seeds; "" if they have different names."""
        names = {run_names.without_seed(run.name) for run in self.runs}
        return names.pop() if len(names) == 1 else ""

    @property
    def counted(self) -> tuple[LoggedRun, ...]:
        """The runs over which means are taken: the valid ones, or all if none is valid."""
        return tuple(run for run in self.runs if not run.figures.invalid) or self.runs

    @property
    def invalid(self) -> str | None:
        """Why its figures are not valid; None if any of its runs is valid."""
        return self.counted[0].figures.invalid

    def values(self, quantity: Quantity) -> list[float]:
        """Return the known values of a figure of the counted runs."""
        return [value for run in self.counted if (value := quantity.of(run.figures)) is not None]

    def estimate(self, quantity: Quantity) -> Estimate | None:
        """Return the mean of a figure over the runs; None if no run has it.

        If only some runs have it, such as the time to a target that the others have not reached, the
        mean is over those runs, without an interval.
        """
        values = self.values(quantity)
        mean = estimates.estimate(values)
        return mean if len(values) == len(self.counted) else mean and replace(mean, low=None, high=None)

    @cached_property
    def curve(self) -> MeanCurve | None:
        """Mean of the metric over time."""
        return estimates.mean_curve([(run.figures.times, run.figures.accuracies) for run in self.counted])

    @cached_property
    def figures(self) -> RunFigures:
        """Its means in the form of the figures of one run, with its label."""
        first = self.counted[0].figures
        method = self.label if first.mode.iid else self.label.removesuffix(NON_IID_LABEL)
        if len(self.counted) == 1:
            return replace(first, mode=replace(first.mode, method=method))
        kind, _ = run_names.parts(first.mode.folder)
        mode = replace(first.mode, folder=run_names.folder_name(kind, self.name), method=method)

        def mean(key: str) -> float | None:
            values = [getattr(run.figures, key) for run in self.counted]
            return None if None in values else math.fsum(values) / len(values)

        curve = self.curve
        return replace(
            first,
            mode=mode,
            devices=_mean_devices([run.figures.devices for run in self.counted]),
            rounds=round(mean("rounds") or 0),
            total_time=mean("total_time") or 0.0,
            times=curve.times if curve else (),
            accuracies=curve.means if curve else (),
            parts={},
            accuracy_rounds=(),
            evaluated_rounds=(),
            round_ends=(),
            throughput=mean("throughput"),
            speed_limit=mean("speed_limit"),
            bytes_sent=mean("bytes_sent"),
            bytes_received=mean("bytes_received"),
            bytes_estimated=any(run.figures.bytes_estimated for run in self.counted),
            overrun_share=max(run.figures.overrun_share for run in self.counted),
            times_of_runs=tuple(run.figures.time_to_target for run in self.counted),
        )


def _mean_devices(runs: Sequence[tuple[DeviceFigures, ...]]) -> tuple[DeviceFigures, ...]:
    """Return the devices of all runs, with the mean of their computing time ratios."""
    by_name: dict[str, list[DeviceFigures]] = {}
    for device in (device for devices in runs for device in devices):
        by_name.setdefault(device.name, []).append(device)

    def mean(devices: list[DeviceFigures], key: str) -> float | None:
        values = [value for device in devices if (value := getattr(device, key)) is not None]
        return math.fsum(values) / len(values) if values else None

    return tuple(
        replace(
            devices[0],
            speed=mean(devices, "speed"),
            computing_ratio=mean(devices, "computing_ratio"),
            published_computing_ratio=mean(devices, "published_computing_ratio"),
        )
        for devices in by_name.values()
    )


@dataclass(frozen=True)
class Section:
    """Comparable runs: of one network, data set and metric.

    Attributes:
        network: the network, or the user's program.
        dataset: name of the data set; "" if unknown.
        metric: metric of the evaluations.
        target: value of the metric for the time to target; None if there is none.
        groups: the groups; differences are relative to the first one.
        differing: option that differs between the groups → its value in each group.
    """

    network: str
    dataset: str
    metric: Metric
    target: float | None
    groups: tuple[Group, ...]
    differing: Mapping[str, tuple[Any, ...]]

    @property
    def runs(self) -> list[LoggedRun]:
        """All runs, group by group."""
        return [run for group in self.groups for run in group.runs]

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The figures to compare; recalls where all runs have them."""
        recalled = all(run.figures.min_recall is not None for group in self.groups for run in group.runs)
        target = "the target" if self.target is None else f"{self.target:g}"
        final = FINAL_ACCURACY if self.metric.is_accuracy else FINAL
        return (
            replace(TIME, heading=TIME.heading.format(target=target)),
            replace(final, heading=final.heading.format(metric=self.metric.name)),
            *((MIN_RECALL, MEAN_RECALL) if recalled else ()),
            *(THROUGHPUT, EFFICIENCY, TRAFFIC),
        )

    def difference(self, group: Group, quantity: Quantity) -> Difference | None:
        """Return the difference of a group from the first one.

        Return None if a group has no valid run, or a run lacks the figure.
        """
        mean, reference = group.estimate(quantity), self.groups[0].estimate(quantity)
        if mean is None or reference is None or group.invalid or self.groups[0].invalid:
            return None
        if mean.n < len(group.counted) or reference.n < len(self.groups[0].counted):
            return None
        return estimates.difference(mean, reference)

    def mean_texts(self, group: Group, quantity: Quantity) -> tuple[str, str]:
        """Return a formatted mean, and its interval, the number of its runs if not all have it, or ""."""
        mean = group.estimate(quantity)
        of_time = quantity.key == TIME.key and self.target is not None and bool(group.counted[0].figures.times)
        if mean is None:
            return "not reached" if of_time else UNKNOWN, ""
        if mean.n < len(group.counted):
            count = f"({mean.n} of {len(group.counted)}{' reached it' if of_time else ''})"
            return quantity.mean_text(mean), count
        return quantity.mean_text(mean), quantity.interval_text(mean)

    def speedup(self, group: Group, name: str) -> Speedup:
        """Return a group's speedup over a baseline, given by the name of its algorithm."""
        return speedup(group.figures, [other.figures for other in self.groups], name)
