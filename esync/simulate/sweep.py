"""Run a grid of simulations, several at a time, and print one table of the results."""

import itertools
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console

from ..algorithms.loading import AlgorithmError, find
from ..launch import flags
from ..launch.description import Description, DescriptionError, check_key_paths
from ..launch.key_paths import UnknownKeyError
from ..launch.yaml_text import value as yaml_value
from ..runtime.errors import ExpectedError, suggestion
from ..runtime.files import write_atomically
from ..runtime.terminal import NOT_KNOWN, TerminalTable, clock, right
from .cluster import relevant_parts
from .job import FinishedSimulation, SimulationJob, describe
from .job import run as run_one

#: Result → column.
COLUMNS = {"rounds": "rounds", "throughput": "samples/s", "efficiency": "efficiency", "final_accuracy": "accuracy"}


@dataclass(frozen=True)
class Failed:
    """A combination that could not be simulated.

    Attributes:
        reason: why.
        usage: whether the combination makes no job at all.
    """

    reason: str
    usage: bool


def grid(job: SimulationJob, sweeps: Sequence[str]) -> list[tuple[dict[str, Any], SimulationJob]]:
    """Return every combination of the swept values, with its job.

    Raises:
        DescriptionError: a sweep is not KEY=A,B,C, its key is neither a flag nor a place in the
            description, or it has no effect; a flag would refuse a value.
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
        _checked("mode", text)  # it may be another package's, whose flags are known afterwards
    _check_keys(job, list(axes))
    for key, texts in axes.items():
        if key not in flags.known() and len(set(texts)) > 1:
            _check_effect(job, key, [yaml_value(text) for text in texts])
    jobs = []
    for point in itertools.product(*axes.values()):
        chosen = dict(zip(axes, point, strict=True))
        typed, changes = dict(job.typed), dict(job.changes)
        for key, value in chosen.items():
            if key in flags.known():
                typed[key] = _checked(key, value)
            else:
                changes[key] = yaml_value(value)
        # Logs would overwrite one another: the folder is chosen by network and mode only.
        jobs.append((chosen, replace(job, typed=typed, changes=changes, logs=False, quiet=True)))
    return jobs


def run(job: SimulationJob, sweeps: Sequence[str], at_a_time: int | None, path: Path | None) -> int:
    """Simulate the grid, print the table, write the results.

    A combination that cannot be simulated is reported, and the others go on.

    Returns:
        The exit code: 0 all are done; 1 some have failed; 2 none of them makes a job.
    """
    jobs = grid(job, sweeps)
    processes = min(at_a_time or len(os.sched_getaffinity(0)), len(jobs))
    rows: list[dict[str, Any]] = []
    failures: list[Failed] = []
    modes = sorted({each.typed["mode"] for _, each in jobs if "mode" in each.typed})
    with ProcessPoolExecutor(processes, get_context("spawn"), _load, (modes,)) as pool:
        under_way = [(chosen, pool.submit(_attempt, each)) for chosen, each in jobs]
        for chosen, future in under_way:
            words = ", ".join(f"{key}={value}" for key, value in chosen.items())
            try:
                outcome = future.result()
            except BrokenProcessPool:
                outcome = Failed("its process, or one beside it, was ended from outside (out of memory?)", False)
            if isinstance(outcome, Failed):
                failures.append(outcome)
                rows.append({"sweep": chosen, "error": outcome.reason})
                print(f"simulate: error: {words}: {outcome.reason}", file=sys.stderr, flush=True)
            else:
                rows.append({"sweep": chosen, **outcome.result})
                print(f"{words}, {_brief(outcome)}", flush=True)
    if path is not None:
        write_atomically(path, json.dumps(rows, indent=2).encode() + b"\n")
    Console(width=None if sys.stdout.isatty() else 140).print(table(rows))
    if not failures:
        return 0
    print(f"simulate: error: {len(failures)} of {len(jobs)} combinations failed", file=sys.stderr, flush=True)
    return 2 if len(failures) == len(jobs) and all(each.usage for each in failures) else 1


def table(rows: Sequence[dict[str, Any]]) -> TerminalTable:
    """One line for each simulation."""
    columns = TerminalTable(*rows[0]["sweep"], *map(right, ("time", *COLUMNS.values(), "longest wait")))
    for row in rows:
        swept = map(str, row["sweep"].values())
        if "error" in row:
            columns.add(*swept, "failed", *(NOT_KNOWN for _ in COLUMNS), NOT_KNOWN)
            continue
        longest = max(device["wait"]["max"] for device in row["devices"])
        columns.add(*swept, clock(row["seconds"]), *(_show(row[name]) for name in COLUMNS), f"{longest:.3f} s")
    return columns


def _load(modes: Sequence[str]) -> None:
    """Load the algorithms of all combinations, because the description may hold options of any of them."""
    for text in modes:
        with suppress(AlgorithmError):  # told by the combination itself
            find(text)


def _attempt(job: SimulationJob) -> FinishedSimulation | Failed:
    """Simulate one combination. Its errors are told as text: not every exception survives the way between processes."""
    try:
        return run_one(job)
    except ExpectedError as error:
        return Failed(str(error), isinstance(error, DescriptionError))
    except OSError as error:
        return Failed(f"{error.filename or 'failed'}: {error.strerror or error}", False)
    except Exception as error:  # a fault of this program: the others are simulated all the same
        return Failed(f"{type(error).__name__}: {error}", False)


def _checked(key: str, text: str) -> Any:
    """Return the value of a flag that is swept; DescriptionError where the worker would refuse it."""
    try:
        return flags.check(key, yaml_value(text) if text in ("true", "false") else text)
    except flags.FlagError as error:
        raise DescriptionError(f"--sweep {key}={text}: {error}") from None


def _key(name: str) -> str:
    """Return a flag by its name with underscores, and a place in the description as it was given."""
    flag = name.removeprefix("--").replace("-", "_")
    return flag if flag in flags.known() else name


def _check_keys(job: SimulationJob, keys: Sequence[str]) -> None:
    """Refuse keys that are neither a flag nor a key of the description, and those that a flag overrides."""
    for key in keys:
        if "." not in key and key not in flags.known() and key not in Description.model_fields:
            raise DescriptionError(
                f"--sweep {key}: it is neither a flag of the worker nor a place in the description, such as "
                f"network.bandwidth{suggestion(key.replace('-', '_'), [*flags.known(), *Description.model_fields])}"
            )
        if key.startswith("train."):
            flag = _key(key.removeprefix("train."))
            if flag in job.typed or flag in keys:
                raise DescriptionError(f"--sweep {key}: it has no effect beside {flags.flag(flag)}; sweep {flag}")
    try:
        check_key_paths(job.file, [key for key in keys if key not in flags.known()])
    except UnknownKeyError as error:
        raise DescriptionError(f"--sweep {error}") from None


def _check_effect(job: SimulationJob, key: str, values: Sequence[Any]) -> None:
    """Refuse a place in the description whose values all come to the same in a simulation."""
    first = None
    for value in values:
        try:
            heard = relevant_parts(describe(replace(job, changes={**job.changes, key: value})), job.file.parent)
        except DescriptionError:
            return  # reported with its combinations
        if first is not None and heard != first:
            return
        first = heard
    raise DescriptionError(
        f"--sweep {key}: its values make no difference to this simulation: something else in {job.file} overrides it, "
        "or only launch reads it"
    )


def _brief(done: FinishedSimulation) -> str:
    return f"{done.result['rounds']} rounds in {clock(done.result['seconds'])}"


def _show(value: Any) -> str:
    return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
