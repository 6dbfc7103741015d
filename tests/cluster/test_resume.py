"""A killed run that resumes from a checkpoint, against an uninterrupted one, on real clusters.

tests/checkpoints and tests/exchange have further algorithms, in memory.
"""

import signal
from pathlib import Path
from typing import Any

import numpy as np

from .harness import outputs_of
from .resuming_worker import Plan

ROUNDS, KILLED = 10, 8  # checkpoints after rounds 3, 6 and 9
WORKERS, SERVERS = 2, 2
PLAN: dict[str, Any] = {"algorithm": "sync", "optimizer": "adam", "settings": {"learning_rate": 0.01}, "rounds": ROUNDS}


def train(folder: Path, name: str, expected: int = 0, **plan: Any) -> list[str]:
    """Train on a cluster; what the workers have printed."""
    plans = [Plan(weights=str(folder / f"{name}-{rank}.npy"), **PLAN, **plan).arguments() for rank in range(WORKERS)]
    return outputs_of(folder / name, plans, expected, SERVERS, replaced=True)


def test_killed_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    train(tmp_path, "whole", directory=str(tmp_path / "a"))
    parts = {"directory": str(tmp_path / "b"), "resume": True}
    outputs = train(tmp_path, "killed", -signal.SIGKILL, killed=KILLED, **parts)
    assert "begins after round 0" in outputs[0]
    outputs = train(tmp_path, "resumed", **parts)
    assert all("begins after round 6" in output for output in outputs)
    for rank in range(WORKERS):
        reference, resumed = (np.load(tmp_path / f"{name}-{rank}.npy") for name in ("whole", "resumed"))
        assert reference.tobytes() == resumed.tobytes()
