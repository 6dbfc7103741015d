"""A grid of simulations, several at a time, and one table of what came out."""

import itertools
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from ..files import write_whole
from ..launch import flags
from ..launch.description import DescriptionError
from ..launch.rows import clock
from .job import Done, Job
from .job import run as run_one

#: Result → column.
COLUMNS = {"rounds": "rounds", "throughput": "samples/s", "efficiency": "efficiency", "final_accuracy": "accuracy"}


def grid(job: Job, sweeps: Sequence[str]) -> list[tuple[dict[str, Any], Job]]:
    """Every combination of the swept values, with its job.

    Raises:
        DescriptionError: a sweep is not KEY=A,B,C.
    """
    axes = []
    for text in sweeps:
        key, _, values = text.partition("=")
        if not key or not values:
            raise DescriptionError(f"--sweep {text!r}: expected KEY=A,B,C, for instance epsilon=0.01,0.1")
        axes.append([(key.replace("-", "_"), value) for value in values.split(",")])
    jobs = []
    for point in itertools.product(*axes):
        chosen = dict(point)
        typed, changes = dict(job.typed), dict(job.changes)
        for key, value in chosen.items():
            if key in flags.DEFAULTS:
                try:
                    typed[key] = flags.check(key, yaml.safe_load(value) if value in ("true", "false") else value)
                except flags.FlagError as error:
                    raise DescriptionError(f"--sweep {key}={value}: {error}") from None
            else:
                changes[key] = yaml.safe_load(value)
        # Logs would overwrite one another: the folder is chosen by network and mode only.
        jobs.append((chosen, replace(job, typed=typed, changes=changes, logs=False, quiet=True)))
    return jobs


def run(job: Job, sweeps: Sequence[str], at_a_time: int | None, path: Path | None) -> int:
    """Simulate the grid, print the table, write the results; the exit code."""
    jobs = grid(job, sweeps)
    processes = min(at_a_time or len(os.sched_getaffinity(0)), len(jobs))
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for (chosen, _), done in zip(jobs, pool.map(run_one, [each for _, each in jobs]), strict=True):
            rows.append({"sweep": chosen, **done.result})
            print(", ".join([*(f"{key}={value}" for key, value in chosen.items()), _brief(done)]), flush=True)
    if path is not None:
        write_whole(path, json.dumps(rows, indent=2).encode() + b"\n")
    Console(width=None if sys.stdout.isatty() else 140).print(table(rows))
    return 0


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """One line for each simulation."""
    columns = Table(*rows[0]["sweep"], "time", *COLUMNS.values(), "longest wait")
    for row in rows:
        longest = max(device["wait"]["max"] for device in row["devices"])
        columns.add_row(
            *map(str, row["sweep"].values()), clock(row["seconds"]), *(_show(row[name]) for name in COLUMNS),
            f"{longest:.3f} s",
        )  # fmt: skip
    return columns


def _brief(done: Done) -> str:
    return f"{done.result['rounds']} rounds in {clock(done.result['seconds'])}"


def _show(value: Any) -> str:
    return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
