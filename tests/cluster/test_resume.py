"""Runs that are killed and go on from a checkpoint, against runs that are not, on real clusters with real images."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .. import child
from .harness import Cluster
from .resuming_worker import Plan

ROUNDS, KILLED = 10, 8  # checkpoints after rounds 3, 6 and 9
MODES: dict[str, tuple[int, int, dict[str, Any]]] = {  # workers, servers, plan
    "esync": (1, 1, {"algorithm": "esync", "options": {"local_iterations": 3, "outer_momentum": 0.5}}),
    "sync, several workers and servers": (2, 2, {"algorithm": "sync"}),
    "dcasgd": (1, 1, {"algorithm": "dcasgd", "options": {"strength": 5.0, "adaptive": True}}),
}


def train(folder: Path, name: str, workers: int, servers: int, expected: int = 0, **plan: Any) -> list[str]:
    """Train on a cluster; what the workers have printed."""
    (folder / name).mkdir()
    with Cluster(folder / name, workers, servers) as cluster:
        for rank in range(workers):
            mine = Plan(weights=str(folder / f"{name}-{rank}.npy"), **plan)
            cluster.start_worker(rank, mine.arguments())
        for rank in range(workers):
            assert cluster.wait(f"worker-{rank}") == expected, cluster.output(f"worker-{rank}")
        return [cluster.output(f"worker-{rank}") for rank in range(workers)]


#: The one that the state of several vectors is for, and that takes as long as the others.
LONG = {"dcasgd": pytest.mark.long}


@pytest.mark.parametrize("mode", [pytest.param(mode, marks=LONG.get(mode, ())) for mode in MODES])
def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path, mode: str) -> None:
    workers, servers, plan = MODES[mode]
    plan = {"rounds": ROUNDS, **plan}
    train(tmp_path, "whole", workers, servers, directory=str(tmp_path / "a"), **plan)
    parts = {"directory": str(tmp_path / "b"), "resume": True, **plan}
    said = train(tmp_path, "killed", workers, servers, -signal.SIGKILL, killed=KILLED, **parts)
    assert "begins after round 0" in said[0]
    said = train(tmp_path, "resumed", workers, servers, **parts)
    assert all("begins after round 6" in each for each in said)
    for rank in range(workers):
        whole, resumed = (np.load(tmp_path / f"{name}-{rank}.npy") for name in ("whole", "resumed"))
        assert whole.tobytes() == resumed.tobytes()


def test_so_does_one_on_a_single_device(tmp_path: Path) -> None:
    def run(name: str, expected: int = 0, **more: Any) -> str:
        weights = str(tmp_path / f"{name}.npy")
        plan = Plan("local", weights=weights, rounds=ROUNDS, **more)
        result = child.run(*plan.arguments())
        assert result.returncode == expected, result.stderr
        return result.stdout

    run("whole", directory=str(tmp_path / "a"))
    run("killed", -signal.SIGKILL, directory=str(tmp_path / "b"), killed=KILLED)
    assert "begins after round 6" in run("resumed", directory=str(tmp_path / "b"), resume=True)
    assert (tmp_path / "whole.npy").read_bytes() == (tmp_path / "resumed.npy").read_bytes()
