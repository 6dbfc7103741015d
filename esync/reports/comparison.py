"""Compare runs, and return the comparison as rows, data frames or JSON.

Runs that differ only in their seeds form a group (`run_groups`). Runs of different networks, data
sets or metrics are not comparable, and are in different sections (`grouping`).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.errors import ExpectedError
from ..runtime.files import write_json
from . import estimates
from .grouping import sections_of, settings
from .modes import BASELINE, STANDALONE
from .run_groups import Group, Section
from .runs import LoggedRun, RunError, find_runs

if TYPE_CHECKING:
    import pandas

#: Columns of `Comparison.evaluation_rows`.
EVALUATION_COLUMNS = ("group", "run", "name", "seed", "round", "time", "metric", "value")


class MissingPandasError(ExpectedError):
    """Raised when a data frame is requested and pandas is not installed."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of runs, as returned by `compare`.

    Attributes:
        sections: comparable runs, in groups.
        problems: sentences about runs that are incomplete, invalid or not compared.
    """

    sections: tuple[Section, ...]
    problems: tuple[str, ...] = field(default=())

    @property
    def runs(self) -> list[LoggedRun]:
        """All runs, group by group."""
        return [run for section in self.sections for run in section.runs]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each run: its group, name and facts, differing options, and figures."""
        return [
            _row(section, group, run) for section in self.sections for group in section.groups for run in group.runs
        ]

    def evaluation_rows(self) -> list[dict[str, Any]]:
        """Return one row for each evaluation of each run, with its parts as `part_NAME`."""
        return [
            {
                **{"group": group.label, "run": str(run.folder), "name": run.name, "seed": run.seed},
                **{"round": number, "time": time, "metric": run.metric.name, "value": value},
                **{f"part_{name}": values[index] for name, values in run.figures.parts.items()},
            }
            for section in self.sections
            for group in section.groups
            for run in group.runs
            for index, (number, time, value) in enumerate(
                zip(run.figures.evaluated_rounds, run.figures.times, run.figures.accuracies, strict=True)
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
        rows = self.evaluation_rows()
        return _frame(rows, [*dict.fromkeys([*EVALUATION_COLUMNS, *(column for row in rows for column in row)])])

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
        write_json(path, self.as_json(), allow_nan=False, default=str)


def compare(runs: str | Path | Iterable[str | Path], target: float | None = None) -> Comparison:
    """Compare runs, given by their folders.

    Runs that differ only in their seeds form a group.

    Args:
        runs: folders of runs, folders with runs in them, or patterns such as
            `logs/lenet/esync@base-seed*`. With `LABEL=` in front, its runs form a separate
            group with that label.
        target: value of the metric for the time to target; None for the usual one of each metric.

    Raises:
        RunError: a folder does not exist or holds no run, or the target is not a value of the
            metric.
    """
    labels: dict[Path, tuple[LoggedRun, str]] = {}
    for text in [runs] if isinstance(runs, str | Path) else runs:
        label, pattern = labelled(str(text))
        for run in find_runs([pattern], target):
            folder = run.folder.resolve()
            if folder in labels and label and labels[folder][1] not in ("", label):
                raise RunError(f"{run.folder}: it is in two groups, {labels[folder][1]} and {label}")
            if folder not in labels or label:
                labels[folder] = run, label
    if not labels:
        raise RunError("there is nothing to compare: name the folder of a run")
    return compare_runs([run for run, _ in labels.values()], [label for _, label in labels.values()], target)


def labelled(text: str) -> tuple[str, str]:
    """Return the label and the pattern of LABEL=PATTERN; a path that exists has no label."""
    label, equals, pattern = text.partition("=")
    if not equals or not label or not pattern or "/" in label or Path(text).exists():
        return "", text
    return label, pattern


def compare_runs(runs: Sequence[LoggedRun], labels: Sequence[str] = (), target: float | None = None) -> Comparison:
    """Compare runs that have been loaded.

    Args:
        runs: the runs.
        labels: a label for each run, "" for none; runs with different labels are in different groups.
        target: see `compare`.
    """
    problems = [f"{run.folder}: {problem}" for run in runs for problem in run.problems]
    sections = sections_of(runs, labels or [""] * len(runs), target, problems)
    return Comparison(tuple(sections), tuple(problems))


def _row(section: Section, group: Group, run: LoggedRun) -> dict[str, Any]:
    figures = run.figures
    options = settings(run)
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
        "simulated": options["simulated"],
        "finished": run.finished,
        "metric": section.metric.name,
        "final": figures.final_accuracy,
        "best": figures.best_accuracy,
        **figures.as_json(),
        "wait_mean": math.fsum(waits) / len(waits) if waits else None,
        **{f"option_{name}": options.get(name) for name in section.differing if name not in ("mode", "simulated")},
    }


def _section_as_json(section: Section) -> dict[str, Any]:
    groups = []
    for group in section.groups:
        means = {quantity.key: group.estimate(quantity) for quantity in section.quantities}
        differences = {quantity.key: section.difference(group, quantity) for quantity in section.quantities}
        groups.append(
            {
                "label": group.label,
                "runs": [str(run.folder) for run in group.runs],
                "counted": [str(run.folder) for run in group.counted],
                "invalid_reason": group.invalid,
                "estimates": {key: mean and asdict(mean) for key, mean in means.items()},
                "differences": {
                    key: value and {**asdict(value), "beyond_chance": value.beyond_chance}
                    for key, value in differences.items()
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
