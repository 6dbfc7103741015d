"""The same learning rate on two unequal workers of a real cluster, also after a resume."""

import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from esync.runtime.mxnet_import import mx

from .harness import Cluster
from .schedule_worker import BASE, DATASET_SIZE, FINAL, Plan

STEP_TIMES = ("0.03", "0.2")  # seconds of an iteration on each worker
KILLED = 5  # checkpoints after rounds 2, 4 and 6
Entries = dict[int, dict[str, Any]]  # round → what a worker has said after it


def train(folder: Path, plan: Plan, killed: bool = False) -> list[Entries]:
    """What each worker has said, after the start and after every exchange."""
    folder.mkdir()
    with Cluster(folder, len(STEP_TIMES), replaced=True) as cluster:
        plan = replace(plan, options={"state_server": f"127.0.0.1:{cluster.start_state_server()}"})
        for rank, step_time in enumerate(STEP_TIMES):
            logs = str(folder / "logs")
            cluster.start_worker(rank, plan.arguments(), ESYNC_STEP_TIME=step_time, ESYNC_LOG_DIR=logs)
        for rank in range(len(STEP_TIMES)):
            code = cluster.wait(f"worker-{rank}")
            assert code == (-signal.SIGKILL if killed else 0), cluster.output(f"worker-{rank}")
        return [entries_of(cluster.output(f"worker-{rank}")) for rank in range(len(STEP_TIMES))]


def entries_of(output: str) -> Entries:
    entries = [json.loads(line) for line in re.findall(r"^at (.*)$", output, re.MULTILINE)]
    return {entry["round"]: entry for entry in entries}


def common(workers: list[Entries]) -> Entries:
    """Round → what all workers have said alike after it."""
    alike = [
        {
            round_: {name: entry[name] for name in ("samples", "epoch", "learning_rate")}
            for round_, entry in mine.items()
        }
        for mine in workers
    ]
    assert alike[0] == alike[1]
    return alike[0]


def expected(samples: int) -> float:
    """What Gluon's own schedule over one epoch says after that many samples."""
    epochs = (samples + 1) / DATASET_SIZE
    if epochs >= 1:
        return FINAL
    rate: float = mx.lr_scheduler.CosineScheduler(1, base_lr=BASE, final_lr=FINAL)(epochs)
    return rate


def test_unequal_workers_have_the_same_rates_before_and_after_a_resume(tmp_path: Path) -> None:
    plan = Plan("esync", "epochs", length=1, optimizer="adam", directory=str(tmp_path / "kept"))
    before = train(tmp_path / "killed", replace(plan, killed=KILLED), killed=True)
    after = train(tmp_path / "resumed", replace(plan, resume=True))
    first, second = common(before), common(after)
    assert (list(first), list(second)) == ([0, 1, 2, 3, 4, 5], [4, 5, 6, 7, 8])
    assert second[4] == first[4]
    for run in (first, second):
        for entry in run.values():
            assert entry["learning_rate"] == pytest.approx(expected(entry["samples"]), rel=1e-12)
    rates = [entry["learning_rate"] for entry in (*first.values(), *list(second.values())[1:])]
    assert len(set(rates[:4])) == 4
    # These workers have taken different numbers of steps, and Adam has counted each one's own.
    step_counts = [mine[8]["own steps"] for mine in after]
    assert len(set(step_counts)) > 1
    assert [mine[8]["counts"] for mine in after] == [[steps] for steps in step_counts]


def test_replacement_has_the_others_rate(tmp_path: Path) -> None:
    """In mode sync, another rate than the others' would end the run; rank 0 alone evaluates, and never improves."""
    plan = Plan("sync", "plateau", length=1)
    logs = str(tmp_path / "logs")
    with Cluster(tmp_path, 2, replaced=True) as cluster:
        cluster.start_worker(0, plan.arguments(), ESYNC_LOG_DIR=logs)
        cluster.start_worker(1, replace(plan, killed=KILLED).arguments(), ESYNC_LOG_DIR=logs)
        assert cluster.wait("worker-1") == -signal.SIGKILL
        cluster.start("worker-1", plan.arguments(), ESYNC_LOG_DIR=logs)
        cluster.finish()
        first, second = (entries_of(cluster.output(f"worker-{rank}")) for rank in range(2))
    assert list(second) == [5, 6, 7, 8]
    for round_, entry in second.items():
        assert entry["learning_rate"] == first[round_]["learning_rate"]
    seen = [entry["learning_rate"] for entry in first.values()]
    assert seen == sorted(seen, reverse=True)
    assert [rate / BASE for rate in seen] == [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.125]
