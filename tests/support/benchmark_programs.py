"""Modules of `benchmarks/`, which is no package and stays out of the path of modules."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def benchmark(name: str) -> ModuleType:
    """Import a program of `benchmarks/`, or a module of its harness."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
