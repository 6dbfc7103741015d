"""docs/internals/exchange.md follows a gradient: its modules and functions are those that the code has."""

import importlib
import re
import sys
from functools import reduce
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from esync.exchange import Specification

from ..support.memory_exchanges import MemoryExchanges

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| `([\w/]+)\.py` \| `([\w.]+)` \|", re.MULTILINE)
STEPS = [
    (f"esync.{path.replace('/', '.')}", name)
    for _, path, name in ROW.findall((ROOT / "docs/internals/exchange.md").read_text())
]


def test_the_walk_has_eighteen_steps_and_their_functions_exist() -> None:
    assert len(STEPS) == 18
    for module, name in STEPS:
        reduce(getattr, name.split("."), importlib.import_module(module))


def test_an_exchange_passes_the_steps_in_their_order() -> None:
    side = MemoryExchanges(Specification("sgd", True), 2, np.zeros(8, np.float32), 1, 4)
    calls: list[tuple[str, str]] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls.append((frame.f_globals.get("__name__", ""), frame.f_code.co_name))

    sys.setprofile(profile)
    try:
        side.round(side.workers, [np.ones(8), np.ones(8)])
    finally:
        sys.setprofile(None)
    in_memory = ("esync.exchange.protocol", "esync.exchange.codecs", "esync.exchange.blockwise", "esync.rules")
    steps = [(module, name.rpartition(".")[2]) for module, name in STEPS if module.startswith(in_memory)]
    assert len(steps) == 11
    assert not set(steps) - set(calls)
    *forth, wait = steps
    assert forth == sorted(forth, key=calls.index)
    assert calls.index(wait) > calls.index(forth[0])
