"""Killed runs that resume from a checkpoint, against uninterrupted ones, on real clusters.

--long adds what the tests of tests/checkpoints and tests/exchange show in memory as well.
"""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..support import child
from ..support.forked import ForkedProgram
from ..support.variants import variants
from .harness import Cluster, outputs_of
from .resuming_worker import Plan

REMEMBERING = f"{Path(__file__).with_name('remembering.py')}:Remembering"
ROUNDS, KILLED = 10, 8  # checkpoints after rounds 3, 6 and 9
MODES: dict[str, tuple[int, int, dict[str, Any]]] = {  # workers, servers, plan
    "esync": (1, 1, {"algorithm": "esync", "options": {"local_iterations": 3, "outer_momentum": 0.5}}),
    "an algorithm with a state": (2, 1, {"algorithm": REMEMBERING, "options": {"local_iterations": 2}}),
    "sync with Adam": (2, 2, {"algorithm": "sync", "optimizer": "adam", "settings": {"learning_rate": 0.01}}),
    "decaying rates": (
        2,
        1,
        {
            "algorithm": "local-sgd",
            "options": {"local_iterations": 2, "lr_decay": "0.25:0.5,0.7:0.1"},
            "samples": 10 * 2 * 2 * 16,
        },
    ),
    "overlap with 2bit": (
        2,
        2,
        {"algorithm": "local-sgd", "options": {"local_iterations": 3, "run_ahead": 1, "compression": "2bit"}},
    ),
    "dgs": (
        1,
        2,
        {"algorithm": "dgs", "options": {"ratio": 0.1, "momentum": 0.5}, "settings": {"learning_rate": 0.05}},
    ),
    "dgc-async in its warm-up": (
        1,
        1,
        {"algorithm": "dgc-async", "options": {"ratio": 0.01, "warm_up": 9, "clip": 1.0, "dense_below": 0}},
    ),
}

QUICK = ("sync with Adam", "dgs")


def train(folder: Path, name: str, workers: int, servers: int, expected: int = 0, **plan: Any) -> list[str]:
    """Train on a cluster; what the workers have printed."""
    plans = [Plan(weights=str(folder / f"{name}-{rank}.npy"), **plan).arguments() for rank in range(workers)]
    return outputs_of(folder / name, plans, expected, servers, replaced=True)


@pytest.mark.parametrize("mode", variants(MODES, quick=QUICK))
def test_killed_run_resumes_bit_for_bit(tmp_path: Path, mode: str) -> None:
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
        if plan["algorithm"] == REMEMBERING:
            assert "begins after round 6 exchanges: 6" in said[rank]
            ours, theirs = (np.load(f"{tmp_path}/{name}-{rank}.npy.state.npz") for name in ("resumed", "whole"))
            assert theirs["mean"].any()
            assert ours["mean"].tobytes() == theirs["mean"].tobytes()
            assert ours["exchanges"] == theirs["exchanges"] == ROUNDS


def test_killed_run_on_one_device_resumes_bit_for_bit(tmp_path: Path) -> None:
    def run(name: str, expected: int = 0, **more: Any) -> str:
        weights = str(tmp_path / f"{name}.npy")
        plan = Plan("local", weights=weights, rounds=ROUNDS, **more)
        log = tmp_path / f"{name}.log"
        assert ForkedProgram(plan.arguments(), child.environment(), log).wait(60) == expected, log.read_text()
        return log.read_text()

    run("whole", directory=str(tmp_path / "a"))
    run("killed", -signal.SIGKILL, directory=str(tmp_path / "b"), killed=KILLED)
    assert "begins after round 6" in run("resumed", directory=str(tmp_path / "b"), resume=True)
    assert (tmp_path / "whole.npy").read_bytes() == (tmp_path / "resumed.npy").read_bytes()


def test_replacement_takes_the_checkpointed_state_of_the_dead_worker(tmp_path: Path) -> None:
    """The state is that of the newest checkpoint; the round is the job's."""
    plans = [
        Plan(REMEMBERING, str(tmp_path / "kept"), str(tmp_path / f"{rank}.npy"), ROUNDS, KILLED * rank)
        for rank in range(2)
    ]
    with Cluster(tmp_path, 2, replaced=True) as cluster:
        for rank, plan in enumerate(plans):
            cluster.start_worker(rank, plan.arguments())
        assert cluster.wait("worker-1") == -signal.SIGKILL, cluster.output("worker-1")
        cluster.start("worker-1", replace(plans[1], killed=0).arguments())
        for rank in range(2):
            assert cluster.wait(f"worker-{rank}") == 0, cluster.output(f"worker-{rank}")
        assert "begins after round 0 exchanges: 0" in cluster.output("worker-0")
        assert "begins after round 8 exchanges: 6" in cluster.output("worker-1")
    for rank, exchanges in enumerate((10, 8)):
        with np.load(tmp_path / f"{rank}.npy.state.npz") as state:
            assert state["exchanges"] == exchanges
