"""Modules of `benchmarks/`, which is no package and stays out of the path of modules."""

import importlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from esync.simulate.__main__ import parse_arguments

ROOT = Path(__file__).parents[2]


def benchmark(name: str) -> ModuleType:
    """Import a program of `benchmarks/`, or a module of its harness."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def simulations_of(runs: Iterable[Any], arguments: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each run and what the simulator makes of its flags; the names of the runs have to differ."""
    runs = list(runs)
    assert len({run.name for run in runs}) == len(runs)
    for run in runs:
        _, *words = run.words(arguments)
        assert words[:2] == ["-m", "esync.simulate"]
        options, job = parse_arguments(words[2:])
        assert options.file.is_file()
        yield run, job


def leave(folder: Path, curves: Mapping[str, list[tuple[float, float]]], **result: Any) -> None:
    """Write finished runs: name of a run → seconds and accuracies of its evaluations."""
    folder.mkdir(exist_ok=True)
    runs = {
        name: {
            "result": {"accuracies": [[0, *point] for point in curve], "final_accuracy": curve[-1][1], **result},
            "real": {"core_seconds": 1.0},
        }
        for name, curve in curves.items()
    }
    (folder / "runs.json").write_text(json.dumps(runs))
