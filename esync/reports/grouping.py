"""Sort runs into sections of comparable runs, and into groups that differ only in their seeds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..runtime import run_names
from ..runtime.metric import Metric
from ..runtime.output import printable
from ..runtime.terminal import UNKNOWN
from .metrics_table import common_target
from .modes import NON_IID_LABEL
from .run_groups import Group, Section
from .runs import LoggedRun, RunError
from .style import distinguishable

#: Options that do not distinguish runs: the seed, paths and addresses, output, and options of single
#: workers, which "devices" describes.
NO_DIFFERENCE = frozenset(
    {
        *("seed", "name", "log_dir", "data_dir", "checkpoint_dir", "checkpoint_every", "keep_checkpoints", "resume"),
        *("overwrite", "quiet", "job", "state_server_ip", "state_server_port", "no_export"),
        *("tensorboard", "wandb", "mlflow"),
        *("start_timeout", "cpu", "gpu", "step_time", "straggle", "mode", "use_dcasgd", "split_by_class"),
    }
)


def sections_of(
    runs: Sequence[LoggedRun], labels: Sequence[str], target: float | None, problems: list[str]
) -> list[Section]:
    """Return runs in sections by network, data set and metric, and in groups that differ in their seeds only.

    Args:
        runs: the runs.
        labels: a label for each run, "" for none; runs with different labels are in different groups.
        target: value of the metric for the time to target; None for the usual one of each metric.
        problems: sentences about unusual runs are added to these.

    Raises:
        RunError: the target is not a value of the metric.
    """
    separate: dict[tuple[str, str, Metric], list[tuple[LoggedRun, str]]] = {}
    for run, label in zip(runs, labels, strict=True):
        separate.setdefault((run.network, _dataset(run), run.metric), []).append((run, label))
    if len(separate) > 1:
        names = "; ".join(
            ", ".join(part for part in (network, dataset, metric.label) if part)
            for network, dataset, metric in separate
        )
        problems.append(f"runs of different networks, data sets or metrics are compared apart: {names}")
    return [_section(key, members, target, problems) for key, members in separate.items()]


def compare_singly(network: str, runs: Sequence[LoggedRun], target: float | None = None) -> tuple[Section, ...]:
    """Return a section for each metric of a network's runs, with each run as a separate group.

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
    name = run.facts.get("dataset")
    return name if isinstance(name, str) else ""


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
    names = dict.fromkeys(name for options in described for name in options)
    differing = {name: tuple(options.get(name) for options in described) for name in names if _differs(name, described)}
    groups = _with_styles(_labels(grouped, differing), list(grouped.values()))
    for group in groups:
        _check(group, problems)
    return Section(network, dataset, metric, common, groups, differing)


def _differs(name: str, described: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an option differs; an option that only some modes have is not a difference."""
    values = {_identity(options[name]) for options in described if name in options}
    by_mode = {(options["mode"], name in options) for options in described}
    return len(values) > 1 or len(by_mode) > len({mode for mode, _ in by_mode})


def _identity(value: Any) -> str:
    """Return a text that is equal for equal values only."""
    return json.dumps(value, sort_keys=True, default=str)


def settings(run: LoggedRun) -> dict[str, Any]:
    """Return the settings that distinguish a run from others, without its seed."""
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
    """Return a unique label for each group."""
    labels = []
    for (label, _), runs in grouped.items():
        mode = runs[0].mode
        parts = filter(None, (mode.algorithm, Group("", tuple(runs)).name))
        labels.append(printable(label or ", ".join(parts) + ("" if mode.iid else NON_IID_LABEL)))
    unique: list[str] = []
    for index, label in enumerate(labels):
        same = [other for other, text in enumerate(labels) if text == label]
        options = [
            f"{name} {shown(values[index])}"
            for name, values in differing.items()
            if name != "devices" and values[index] is not None and len({_identity(values[other]) for other in same}) > 1
        ]
        full = f"{label} ({', '.join(options) or 'other devices'})" if len(same) > 1 else label
        unique.append(full if full not in unique else f"{full} ({index + 1})")
    return unique


def shown(value: Any) -> str:
    """Format the value of an option."""
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:g}"
        case list():
            return printable(" ".join(map(str, value))) or UNKNOWN
        case _:
            return printable(str(value))


def _check(group: Group, problems: list[str]) -> None:
    """Report invalid and unfinished runs, and different names or versions in a group."""
    for run in group.runs:
        if reason := run.figures.invalid:
            counted = "" if run in group.counted else ", and not in the means of its group"
            problems.append(f"{run.folder}: {reason}{counted}")
        if run.finished is False:
            problems.append(f"{run.folder}: the run has not come to its end on every device, or is still under way")
    stems = sorted({run_names.without_seed(run.name) or "no name" for run in group.runs})
    if len(stems) > 1:
        problems.append(
            f"{group.label}: runs of different names are one group, because their options are the same: "
            f"{', '.join(stems)}; LABEL=FOLDER keeps them apart"
        )
    versions = {str(run.facts["version"]) for run in group.runs if "version" in run.facts}
    if len(versions) > 1:
        problems.append(f"{group.label}: runs of different versions of esync: {', '.join(sorted(versions))}")


def _with_styles(labels: Sequence[str], grouped: Sequence[Sequence[LoggedRun]]) -> tuple[Group, ...]:
    """Return the groups, each with a unique style."""
    folders = [run_names.folder_name(runs[0].mode.name, str(index)) for index, runs in enumerate(grouped)]
    modes = [replace(runs[0].mode, folder=folder) for folder, runs in zip(folders, grouped, strict=True)]
    styles = [mode.style for mode in distinguishable(modes)]
    return tuple(
        Group(label, tuple(replace(run, mode=replace(run.mode, style=style)) for run in runs))
        for label, runs, style in zip(labels, grouped, styles, strict=True)
    )
