"""Killed runs that resume from a checkpoint, against uninterrupted ones, on real clusters.

tests/checkpoints and tests/exchange have further algorithms, in memory.
"""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .harness import outputs_of
from .resuming_worker import Plan

ROUNDS, KILLED = 10, 8  # checkpoints after rounds 3, 6 and 9
MODES: dict[str, tuple[int, int, dict[str, Any]]] = {  # workers, servers, plan
    "sync with Adam": (2, 2, {"algorithm": "sync", "optimizer": "adam", "settings": {"learning_rate": 0.01}}),
    "dgs": (
        1,
        2,
        {"algorithm": "dgs", "options": {"ratio": 0.1, "momentum": 0.5}, "settings": {"learning_rate": 0.05}},
    ),
}


def train(folder: Path, name: str, workers: int, servers: int, expected: int = 0, **plan: Any) -> list[str]:
    """Train on a cluster; what the workers have printed."""
    plans = [Plan(weights=str(folder / f"{name}-{rank}.npy"), **plan).arguments() for rank in range(workers)]
    return outputs_of(folder / name, plans, expected, servers, replaced=True)


@pytest.mark.parametrize("mode", MODES)
def test_killed_run_resumes_bit_for_bit(tmp_path: Path, mode: str) -> None:
    workers, servers, plan = MODES[mode]
    plan = {"rounds": ROUNDS, **plan}
    train(tmp_path, "whole", workers, servers, directory=str(tmp_path / "a"), **plan)
    parts = {"directory": str(tmp_path / "b"), "resume": True, **plan}
    outputs = train(tmp_path, "killed", workers, servers, -signal.SIGKILL, killed=KILLED, **parts)
    assert "begins after round 0" in outputs[0]
    outputs = train(tmp_path, "resumed", workers, servers, **parts)
    assert all("begins after round 6" in output for output in outputs)
    for rank in range(workers):
        reference, resumed = (np.load(tmp_path / f"{name}-{rank}.npy") for name in ("whole", "resumed"))
        assert reference.tobytes() == resumed.tobytes()
