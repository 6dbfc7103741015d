"""Run a grid of simulations, several at a time, and print one table of the results."""

import itertools
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column

from ..launch import flags
from ..launch.description import Description, DescriptionError
from ..launch.yaml_text import value as yaml_value
from ..runtime.errors import suggestion
from ..runtime.files import write_json
from ..runtime.terminal import UNKNOWN, TerminalTable, clock, messages_of, right
from .job import SimulationJob
from .job import run as run_one
from .parallel import Failed, outcomes, pool

print_error = messages_of("simulate: error")

#: Key of the result → heading of its column.
COLUMNS = {"rounds": "rounds", "throughput": "samples/s", "efficiency": "efficiency", "final_accuracy": "accuracy"}

#: Beginning of errors about a description's section `train`.
_PLACE = re.compile(r"^\S+: train: ")


def grid(job: SimulationJob, sweeps: Sequence[str]) -> list[tuple[dict[str, Any], SimulationJob]]:
    """Return every combination of the swept values, with its job.

    Raises:
        DescriptionError: a sweep is not of the form KEY=A,B,C, its key is neither a flag nor a key
            path of the description, or has no effect, or a flag refuses a value.
    """
    axes: dict[str, list[str]] = {}
    for text in sweeps:
        name, _, values = text.partition("=")
        key = _key(name)
        if not name or not values:
            raise DescriptionError(f"--sweep {text!r}: expected KEY=A,B,C, for instance epsilon=0.01,0.1")
        if key in axes:
            raise DescriptionError(f"--sweep {key}: it is swept twice; give all its values at once, {key}=A,B,C")
        axes[key] = values.split(",")
        if not all(axes[key]):
            raise DescriptionError(f"--sweep {text!r}: there is a comma too many: a value is empty")
    for text in axes.get("mode", []):
        _checked("mode", text)  # loads an algorithm of another package, whose flags are known afterwards
    _check_keys(job, list(axes))
    jobs = []
    for point in itertools.product(*axes.values()):
        chosen = dict(zip(axes, point, strict=True))
        typed, changes = dict(job.typed), dict(job.changes)
        for key, value in chosen.items():
            if key in flags.all_flags():
                typed[key] = _checked(key, value)
            else:
                changes[key] = yaml_value(value)
        # Logs would overwrite one another: the folder is chosen by network and mode only.
        jobs.append((chosen, replace(job, typed=typed, changes=changes, logs=False, quiet=True)))
    return jobs


def run(job: SimulationJob, sweeps: Sequence[str], at_a_time: int | None, path: Path | None) -> int:
    """Simulate the grid, print the table, and write the results.

    A failed combination is reported, and the others continue.

    Returns:
        The exit code: 0 if all were simulated, 1 if some failed, 2 if none is a valid job.
    """
    jobs = grid(job, sweeps)
    rows: list[dict[str, Any]] = []
    failures: list[Failed] = []
    modes = {swept_job.typed["mode"] for _, swept_job in jobs if "mode" in swept_job.typed}
    with pool(at_a_time, len(jobs), modes) as executor:
        results = outcomes(executor, run_one, [swept_job for _, swept_job in jobs])
        for (chosen, _), outcome in zip(jobs, results, strict=True):
            words = ", ".join(f"{key}={value}" for key, value in chosen.items())
            if isinstance(outcome, Failed):
                failures.append(outcome)
                rows.append({"sweep": chosen, "error": outcome.reason})
                print_error(f"{words}: {outcome.reason}")
            else:
                rows.append({"sweep": chosen, **outcome.result})
                print(f"{words}, {outcome.result['rounds']} rounds in {clock(outcome.result['seconds'])}", flush=True)
    if path is not None:
        write_json(path, rows)
    Console(width=None if sys.stdout.isatty() else 140).print(table(rows))
    if not failures:
        return 0
    print_error(f"{len(failures)} of {len(jobs)} combinations failed")
    return 2 if len(failures) == len(jobs) and all(failure.usage for failure in failures) else 1


def table(rows: Sequence[dict[str, Any]]) -> TerminalTable:
    """Return a table with one row per simulation, and the reasons of failures."""
    reason_column = [Column("why not", overflow="fold")] if any("error" in row for row in rows) else []
    columns = TerminalTable(*rows[0]["sweep"], *map(right, ("time", *COLUMNS.values(), "longest wait")), *reason_column)
    for row in rows:
        swept = map(str, row["sweep"].values())
        if "error" in row:
            columns.add(*swept, "failed", *(UNKNOWN for _ in COLUMNS), UNKNOWN, _PLACE.sub("", row["error"]))
            continue
        longest = max(device["wait"]["max"] for device in row["devices"])
        figures = [_show(row[name]) for name in COLUMNS]
        columns.add(*swept, clock(row["seconds"]), *figures, f"{longest:.3f} s", *("" for _ in reason_column))
    return columns


def _checked(key: str, text: str) -> Any:
    """Return the value of a swept flag.

    Raises:
        DescriptionError: the worker would refuse it.
    """
    try:
        return flags.check(key, yaml_value(text) if text in ("true", "false") else text)
    except flags.FlagError as error:
        raise DescriptionError(f"--sweep {key}={text}: {error}") from None


def _key(name: str) -> str:
    """Return the key of a sweep: a flag with underscores, or a key path as it was given."""
    flag = name.removeprefix("--").replace("-", "_")
    return flag if flag in flags.all_flags() else name


def _check_keys(job: SimulationJob, keys: Sequence[str]) -> None:
    """Refuse keys that are neither a flag nor in the description, or that a flag overrides."""
    for key in keys:
        if "." not in key and key not in flags.all_flags() and key not in Description.model_fields:
            raise DescriptionError(
                f"--sweep {key}: it is neither a flag of the worker nor a place in the description, such as "
                f"network.bandwidth{suggestion(key.replace('-', '_'), [*flags.all_flags(), *Description.model_fields])}"
            )
        if key.startswith("train."):
            flag = _key(key.removeprefix("train."))
            if flag in job.typed or flag in keys:
                raise DescriptionError(f"--sweep {key}: it has no effect beside {flags.flag(flag)}; sweep {flag}")


def _show(value: Any) -> str:
    return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
