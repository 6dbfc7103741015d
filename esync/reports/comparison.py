"""Compare runs: groups of runs that differ in their seed only, their means, and the differences.

Runs of different networks, data sets or metrics are in different sections, each with groups of its
own: their figures say nothing about one another.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime import run_names
from ..runtime.errors import ExpectedError
from ..runtime.files import write_atomically
from ..runtime.metric import Metric
from ..runtime.output import printable
from ..runtime.terminal import NOT_KNOWN
from . import estimates
from .estimates import Difference, Estimate, MeanCurve
from .metrics_table import DeviceFigures, RunFigures, common_target
from .modes import BASELINE, NON_IID_LABEL, STANDALONE, Mode
from .runs import LoggedRun, RunError, find_runs
from .speedups import Speedup, speedup
from .style import distinguishable

if TYPE_CHECKING:
    import pandas

#: Options that do not make two runs different: the seed, where things are, how they are told, and
#: those that each worker has for itself, which "devices" describes.
NO_DIFFERENCE = frozenset(
    {
        *("seed", "name", "log_dir", "data_dir", "checkpoint_dir", "checkpoint_every", "keep_checkpoints", "resume"),
        *("overwrite", "quiet", "job", "state_server_ip", "state_server_port", "no_export", "tensorboard"),
        *("start_timeout", "cpu", "gpu", "step_time", "straggle", "mode", "use_dcasgd", "split_by_class"),
    }
)

#: Columns of `Comparison.evaluation_rows`.
EVALUATION_COLUMNS = ("group", "run", "name", "seed", "round", "time", "metric", "value")


class MissingPandasError(ExpectedError):
    """Raised when a data frame is asked for and pandas is not installed."""


@dataclass(frozen=True)
class Quantity:
    """A figure of a run that is compared.

    Attributes:
        key: its name in `RunFigures`, in JSON, and in tables of numbers.
        heading: its name in tables; of the target, `{target}` stands for the value.
        form: format of its values.
        scale: what values are multiplied by before they are printed.
        unit: unit behind a printed value.
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
        """Return a value as it is printed, without its unit."""
        return format(value * self.scale, f"{'+' if sign else ''}{self.form}")

    def mean_text(self, found: Estimate) -> str:
        """Return a mean as it is printed, with its standard deviation and its unit."""
        spread = f" ± {self.text(found.sd)}" if found.sd is not None else ""
        return f"{self.text(found.mean)}{spread}{self.unit}"

    def interval_text(self, found: Estimate | Difference, sign: bool = False) -> str:
        """Return an interval as it is printed, without its unit; "" if there is none."""
        if found.low is None or found.high is None:
            return ""
        return f"[{self.text(found.low, sign)}, {self.text(found.high, sign)}]"


TIME = Quantity("time_to_target", "time to {target}", ",.1f", unit=" s")
FINAL = Quantity("final_accuracy", "final {metric}", ".4g")
FINAL_ACCURACY = replace(FINAL, form=".4f")
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
        """What the names of its runs have in common, apart from their seeds; "" if that is nothing."""
        names = {run_names.without_seed(run.name) for run in self.runs}
        return names.pop() if len(names) == 1 else ""

    @property
    def counted(self) -> tuple[LoggedRun, ...]:
        """The valid runs, of which its figures are means; all of them if none is valid."""
        return tuple(run for run in self.runs if not run.figures.invalid) or self.runs

    @property
    def invalid(self) -> str | None:
        """Why its figures are not valid: no run's are; None if there is a valid one."""
        return self.counted[0].figures.invalid

    def values(self, quantity: Quantity) -> list[float]:
        """Return a figure of the counted runs, as far as it is known."""
        return [value for run in self.counted if (value := quantity.of(run.figures)) is not None]

    def estimate(self, quantity: Quantity) -> Estimate | None:
        """Return the mean of a figure; None if it is known of no run.

        Where it is known of some runs only, such as the time to a target that not all of them have
        reached, the mean is of those and has no interval.
        """
        values = self.values(quantity)
        found = estimates.estimate(values)
        return found if len(values) == len(self.counted) else found and replace(found, low=None, high=None)

    @cached_property
    def curve(self) -> MeanCurve | None:
        """Mean of the metric over time."""
        return estimates.mean_curve([(run.figures.times, run.figures.accuracies) for run in self.counted])

    @cached_property
    def figures(self) -> RunFigures:
        """Its means as if they were the figures of one run, under its label."""
        first = self.counted[0].figures
        method = self.label if first.mode.iid else self.label.removesuffix(NON_IID_LABEL)
        if len(self.counted) == 1:
            return replace(first, mode=replace(first.mode, method=method))
        kind, _ = run_names.parts(first.mode.folder)
        mode = replace(first.mode, folder=run_names.named(kind, self.name), method=method)

        def mean(key: str) -> float | None:
            known = [getattr(run.figures, key) for run in self.counted]
            return None if None in known else math.fsum(known) / len(known)

        curve = self.curve
        return replace(
            first,
            mode=mode,
            devices=_mean_devices([run.figures.devices for run in self.counted]),
            total_time=mean("total_time") or 0.0,
            times=curve.times if curve else (),
            accuracies=curve.means if curve else (),
            accuracy_rounds=(),
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
        known = [value for device in devices if (value := getattr(device, key)) is not None]
        return math.fsum(known) / len(known) if known else None

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
    """Runs that can be compared: of one network, data set and metric.

    Attributes:
        network: the network, or the user's program.
        dataset: name of the data set; "" if the logs do not say.
        metric: what the evaluations compute.
        target: value of the metric for the time to target; None if there is none.
        groups: the groups; the first one is the reference of the differences.
        differing: what differs between the groups: option → its value in each group.
    """

    network: str
    dataset: str
    metric: Metric
    target: float | None
    groups: tuple[Group, ...]
    differing: Mapping[str, tuple[Any, ...]]

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The figures that are compared."""
        target = "the target" if self.target is None else f"{self.target:g}"
        final = FINAL_ACCURACY if self.metric.is_accuracy else FINAL
        return (
            replace(TIME, heading=TIME.heading.format(target=target)),
            replace(final, heading=final.heading.format(metric=self.metric.name)),
            *(THROUGHPUT, EFFICIENCY, TRAFFIC),
        )

    def difference(self, group: Group, quantity: Quantity) -> Difference | None:
        """Return the difference of a group from the first one; None if it is not known.

        That is so where a group has no valid run, or where the figure is not known of all runs.
        """
        own, reference = group.estimate(quantity), self.groups[0].estimate(quantity)
        if own is None or reference is None or group.invalid or self.groups[0].invalid:
            return None
        if own.n < len(group.counted) or reference.n < len(self.groups[0].counted):
            return None
        return estimates.difference(own, reference)

    def mean_texts(self, group: Group, quantity: Quantity) -> tuple[str, str]:
        """Return a mean as it is printed, and its interval, or of how many runs it is; "" if it is of all."""
        found = group.estimate(quantity)
        of_time = quantity.key == TIME.key and self.target is not None and bool(group.counted[0].figures.times)
        if found is None:
            return "not reached" if of_time else NOT_KNOWN, ""
        if found.n < len(group.counted):
            some = f"({found.n} of {len(group.counted)}{' reached it' if of_time else ''})"
            return quantity.mean_text(found), some
        return quantity.mean_text(found), quantity.interval_text(found)

    def speedup(self, group: Group, name: str) -> Speedup:
        """Return a group's speedup over a baseline, given by the name of its algorithm."""
        return speedup(group.figures, [each.figures for each in self.groups], name)


@dataclass(frozen=True)
class Comparison:
    """A comparison of runs; `compare` makes it.

    Attributes:
        sections: groups of runs that can be compared with one another.
        problems: sentences about what is missing, wrong or not compared.
    """

    sections: tuple[Section, ...]
    problems: tuple[str, ...] = field(default=())

    @property
    def runs(self) -> list[LoggedRun]:
        """All runs, group by group."""
        return [run for section in self.sections for group in section.groups for run in group.runs]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each run: its group, what it is, its options that differ, figures."""
        return [
            _row(section, group, run) for section in self.sections for group in section.groups for run in group.runs
        ]

    def evaluation_rows(self) -> list[dict[str, Any]]:
        """Return one row for each evaluation of each run."""
        return [
            {
                **{"group": group.label, "run": str(run.folder), "name": run.name, "seed": run.seed},
                **{"round": number, "time": time, "metric": run.metric.name, "value": value},
            }
            for section in self.sections
            for group in section.groups
            for run in group.runs
            for number, time, value in zip(
                run.figures.accuracy_rounds, run.figures.times, run.figures.accuracies, strict=True
            )
        ]

    def frame(self) -> "pandas.DataFrame":
        """Return `rows` as a data frame of pandas.

        Raises:
            MissingPandasError: pandas is not installed.
        """
        return _frame(self.rows())

    def evaluations(self) -> "pandas.DataFrame":
        """Return `evaluation_rows` as a data frame of pandas.

        Raises:
            MissingPandasError: pandas is not installed.
        """
        return _frame(self.evaluation_rows(), EVALUATION_COLUMNS)

    def as_json(self) -> dict[str, Any]:
        """Return the comparison for --json."""
        return {
            "level": estimates.LEVEL,
            "sections": [_section_as_json(section) for section in self.sections],
            "runs": self.rows(),
            "problems": list(self.problems),
        }

    def write_json(self, path: Path) -> None:
        """Write `as_json` to a file.

        Raises:
            OSError: the file cannot be written.
        """
        content = json.dumps(self.as_json(), indent=2, allow_nan=False, default=str)
        write_atomically(path, content.encode() + b"\n")


def compare(runs: str | Path | Iterable[str | Path], target: float | None = None) -> Comparison:
    """Compare runs, given by their folders.

    Runs that differ in their seed only are a group.

    Args:
        runs: folders of runs, folders with runs in them, or patterns such as
            `logs/lenet/esync@base-seed*`. `LABEL=` in front of one names the group and keeps its
            runs apart from others with the same options.
        target: value of the metric for the time to target; None for the usual one of each metric.

    Raises:
        RunError: a folder does not exist or holds no run, or the target is not a value of the
            metric.
    """
    named: dict[Path, tuple[LoggedRun, str]] = {}
    for text in [runs] if isinstance(runs, str | Path) else runs:
        label, pattern = _labelled(str(text))
        for run in find_runs([pattern], target):
            place = run.folder.resolve()
            if place in named and label and named[place][1] not in ("", label):
                raise RunError(f"{run.folder}: it is in two groups, {named[place][1]} and {label}")
            if place not in named or label:
                named[place] = run, label
    if not named:
        raise RunError("there is nothing to compare: name the folder of a run")
    return compare_runs([run for run, _ in named.values()], [label for _, label in named.values()], target)


def _labelled(text: str) -> tuple[str, str]:
    """Return the label and the pattern of LABEL=PATTERN; a path that exists has no label."""
    label, equals, pattern = text.partition("=")
    if not equals or not label or not pattern or "/" in label or Path(text).exists():
        return "", text
    return label, pattern


def compare_runs(runs: Sequence[LoggedRun], labels: Sequence[str] = (), target: float | None = None) -> Comparison:
    """Compare runs that have been loaded.

    Args:
        runs: the runs.
        labels: a label for each of them, "" for none; runs of different labels are different groups.
        target: see `compare`.
    """
    labels = labels or [""] * len(runs)
    apart: dict[tuple[str, str, Metric], list[tuple[LoggedRun, str]]] = {}
    for run, label in zip(runs, labels, strict=True):
        apart.setdefault((run.network, _dataset(run), run.metric), []).append((run, label))
    problems = [f"{run.folder}: {problem}" for run in runs for problem in run.problems]
    if len(apart) > 1:
        said = "; ".join(
            ", ".join(part for part in (network, dataset, metric.label) if part) for network, dataset, metric in apart
        )
        problems.append(f"runs of different networks, data sets or metrics are compared apart: {said}")
    sections = [_section(key, members, target, problems) for key, members in apart.items()]
    return Comparison(tuple(sections), tuple(problems))


def compare_singly(network: str, runs: Sequence[LoggedRun], target: float | None = None) -> tuple[Section, ...]:
    """Return a section for each metric of a network's runs, in which each of them is a group of its own.

    Args:
        network: name of the network.
        runs: the runs, which keep their labels.
        target: see `compare`.
    """
    styled = [replace(run, mode=mode) for run, mode in zip(runs, distinguishable([r.mode for r in runs]), strict=True)]
    sections = []
    for metric in dict.fromkeys(run.metric for run in styled):
        same = [run for run in styled if run.metric == metric]
        common = common_target([run.summary for run in same], target)
        groups = tuple(Group(run.label, (run.with_target(common),)) for run in same)
        sections.append(Section(network, "", metric, common, groups, {}))
    return tuple(sections)


def _dataset(run: LoggedRun) -> str:
    said = run.facts.get("dataset")
    return said if isinstance(said, str) else ""


def _section(
    key: tuple[str, str, Metric], members: list[tuple[LoggedRun, str]], target: float | None, problems: list[str]
) -> Section:
    network, dataset, metric = key
    if target is not None and not metric.possible(target):
        raise RunError(f"--target {target:g}: {metric.label} should be {metric.expected()}")
    common = common_target([run.summary for run, _ in members], target)
    grouped: dict[tuple[str, str], list[LoggedRun]] = {}
    for run, label in members:
        grouped.setdefault((label, _identity(settings(run))), []).append(run.with_target(common))
    described = [settings(runs[0]) for runs in grouped.values()]
    names = dict.fromkeys(name for each in described for name in each)
    differing = {name: tuple(each.get(name) for each in described) for name in names if _differs(name, described)}
    groups = _with_styles(_labels(grouped, differing), list(grouped.values()))
    for group in groups:
        _check(group, problems)
    return Section(network, dataset, metric, common, groups, differing)


def _differs(name: str, described: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a setting differs; one that a mode does not have is no difference from others."""
    there = {_identity(each[name]) for each in described if name in each}
    by_mode = {(each["mode"], name in each) for each in described}
    return len(there) > 1 or len(by_mode) > len({mode for mode, _ in by_mode})


def _identity(value: Any) -> str:
    """Return a text that is the same for equal settings only."""
    return json.dumps(value, sort_keys=True, default=str)


def settings(run: LoggedRun) -> dict[str, Any]:
    """Return what makes a run different from others, apart from its seed."""
    return {
        "mode": run.mode.name,
        "data": "i.i.d." if run.mode.iid else "non-i.i.d.",
        **{name: value for name, value in sorted(run.options.items()) if name not in NO_DIFFERENCE},
        "simulated": bool(run.facts.get("simulated")),
        "devices": ", ".join(
            f"{name}{f' {step:g} s' if (step := columns.run and columns.run.step_time) else ''}"
            for name, columns in sorted(run.devices.items())
        ),
    }


def _labels(grouped: Mapping[tuple[str, str], list[LoggedRun]], differing: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a label for each group that no other has."""
    labels = []
    for (label, _), runs in grouped.items():
        mode = runs[0].mode
        parts = filter(None, (mode.algorithm, Group("", tuple(runs)).name))
        labels.append(printable(label or ", ".join(parts) + ("" if mode.iid else NON_IID_LABEL)))
    unique: list[str] = []
    for index, label in enumerate(labels):
        same = [other for other, each in enumerate(labels) if each == label]
        told = [
            f"{name} {shown(values[index])}"
            for name, values in differing.items()
            if name != "devices" and values[index] is not None and len({_identity(values[other]) for other in same}) > 1
        ]
        own = f"{label} ({', '.join(told) or 'other devices'})" if len(same) > 1 else label
        unique.append(own if own not in unique else f"{own} ({index + 1})")
    return unique


def shown(value: Any) -> str:
    """Return the value of an option as it is printed."""
    match value:
        case None:
            return NOT_KNOWN
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:g}"
        case list():
            return printable(" ".join(map(str, value))) or NOT_KNOWN
        case _:
            return printable(str(value))


def _check(group: Group, problems: list[str]) -> None:
    """Report what is unusual about the runs of a group."""
    for run in group.runs:
        if reason := run.figures.invalid:
            counted = "" if run in group.counted else ", and not in the means of its group"
            problems.append(f"{run.folder}: {reason}{counted}")
        if run.finished is False:
            problems.append(f"{run.folder}: the run has not come to its end, or is still under way")
    stems = sorted({run_names.without_seed(run.name) for run in group.runs} - {""})
    if len(stems) > 1:
        problems.append(
            f"{group.label}: runs of different names are one group, because their options are the same: "
            f"{', '.join(stems)}; LABEL=FOLDER keeps them apart"
        )
    versions = {str(run.facts["version"]) for run in group.runs if "version" in run.facts}
    if len(versions) > 1:
        problems.append(f"{group.label}: runs of different versions of esync: {', '.join(sorted(versions))}")


def _with_styles(labels: Sequence[str], grouped: Sequence[Sequence[LoggedRun]]) -> tuple[Group, ...]:
    """Return the groups, each with a style of its own."""
    folders = [run_names.named(runs[0].mode.name, str(index)) for index, runs in enumerate(grouped)]
    modes = [replace(runs[0].mode, folder=folder) for folder, runs in zip(folders, grouped, strict=True)]
    styles = [mode.style for mode in distinguishable(modes)]
    return tuple(
        Group(label, tuple(replace(run, mode=replace(run.mode, style=style)) for run in runs))
        for label, runs, style in zip(labels, grouped, styles, strict=True)
    )


def _row(section: Section, group: Group, run: LoggedRun) -> dict[str, Any]:
    figures = run.figures
    own = settings(run)
    waits = [device.wait_mean for device in figures.devices if device.wait_mean is not None]
    return {
        "group": group.label,
        "run": str(run.folder),
        "name": run.name,
        "network": section.network,
        "dataset": section.dataset,
        "mode": run.mode.name,
        "iid": run.mode.iid,
        "seed": run.seed,
        "devices": len(figures.devices),
        "simulated": own["simulated"],
        "finished": run.finished,
        "metric": section.metric.name,
        "final": figures.final_accuracy,
        "best": figures.best_accuracy,
        **figures.as_json(),
        "wait_mean": math.fsum(waits) / len(waits) if waits else None,
        **{f"option_{name}": own.get(name) for name in section.differing if name not in ("mode", "simulated")},
    }


def _section_as_json(section: Section) -> dict[str, Any]:
    groups = []
    for group in section.groups:
        found = {quantity.key: group.estimate(quantity) for quantity in section.quantities}
        against = {quantity.key: section.difference(group, quantity) for quantity in section.quantities}
        groups.append(
            {
                "label": group.label,
                "runs": [str(run.folder) for run in group.runs],
                "counted": [str(run.folder) for run in group.counted],
                "invalid_reason": group.invalid,
                "estimates": {key: each and asdict(each) for key, each in found.items()},
                "differences": {
                    key: each and {**asdict(each), "beyond_chance": each.beyond_chance} for key, each in against.items()
                }
                if group is not section.groups[0]
                else None,
                "speedups": {name: asdict(section.speedup(group, name)) for name in (STANDALONE, BASELINE)},
                "speedup_limit": group.figures.speedup_limit,
                "curve": group.curve and asdict(group.curve),
            }
        )
    return {
        "network": section.network,
        "dataset": section.dataset,
        "metric": asdict(section.metric),
        "target": section.target,
        "reference": section.groups[0].label,
        "differing": {name: list(values) for name, values in section.differing.items()},
        "groups": groups,
    }


def _frame(rows: list[dict[str, Any]], columns: Sequence[str] | None = None) -> "pandas.DataFrame":
    try:
        import pandas
    except ImportError:
        raise MissingPandasError(
            'pandas is not installed: pip install "esync[pandas]"; rows() has the same as a list of dictionaries'
        ) from None
    return pandas.DataFrame(rows, columns=columns)
