"""Checkpoints of mode tiered: workers that rounds do not wait for, in virtual time."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esync.algorithms import TieredESync
from esync.exchange import values_of

from ..support.small_net import BATCH
from .memory_jobs import Job, power_off


def job(directory: Path, tiers: str, step_times: tuple[float, ...], leave_out: str = "none", **arguments: Any) -> Job:
    algorithm = partial(TieredESync, tiers=tiers, leave_out=leave_out)
    return Job(directory, algorithm, workers=len(step_times), servers=2, keep=2, step_times=step_times, **arguments)


@pytest.mark.parametrize("slow", [1.5, 1.8])
def test_tiered_run_that_is_resumed_ends_with_the_same_bits(tmp_path: Path, slow: float) -> None:
    make = partial(job, tiers="0,0,1", step_times=(1.0, 1.0, slow))
    reference = make(tmp_path / "whole").run()
    make(tmp_path / "killed", fate=power_off(5), ends=5).run()
    resumed = make(tmp_path / "killed", resume=True, seed=1).run()
    assert resumed.begun == [4, 4, 4]
    assert resumed.models == reference.models


def test_checkpoint_does_not_wait_for_a_slow_worker_and_keeps_its_update(tmp_path: Path) -> None:
    """The checkpoint of round 2 comes in the midst of its iteration, after which it writes its part."""
    make = partial(job, tmp_path, "0,0,1", (1.0, 1.0, 2.6))
    killed = make(fate=power_off(3), ends=3).run()
    assert killed.held(0) == killed.held(1) == [2]
    assert 0 in killed.held(2)
    seen: list[tuple[int, np.ndarray]] = []

    def look(life: Any, moment: str, round_: int) -> None:
        if life.rank == 0 and not seen:
            slow = next(other.trainer for other in resumed.lives if other.rank == 2)
            slow.replica.open()
            seen.append((slow.algorithm._samples, values_of(slow.replica.update())))
            slow.replica.close()

    resumed = make(resume=True, fate=look, rounds=3)
    resumed.run()
    assert resumed.begun == [2, 2, 2]
    samples, update = seen[0]
    assert samples == BATCH
    assert np.abs(update).max() > 0.01


def test_worker_0_in_a_slower_tier_has_one_round_wait_for_its_checkpoint(tmp_path: Path) -> None:
    killed = job(tmp_path, "1,0,0", (3.5, 1.0, 1.0), rounds=30, every=8, fate=power_off(27), ends=27).run()
    written = killed.held(0)
    assert written == killed.held(1) == killed.held(2) == [8, 16, 24]
    assert killed.cluster.now < 27 + 3 * 3.5  # rounds go on without it between them
    resumed = job(tmp_path, "1,0,0", (3.5, 1.0, 1.0), rounds=30, every=8, resume=True).run()
    assert resumed.begun == [24, 24, 24]


def test_worker_that_is_left_out_stays_so_when_a_run_is_resumed(tmp_path: Path) -> None:
    make = partial(job, tmp_path, "0,0,0", (1.0, 1.0, 1.0), leave_out="2")
    killed = make(fate=power_off(5), ends=5).run()
    assert killed.held(0) == killed.held(1) == [2, 4]
    assert not killed.held(2)
    seen: list[tuple[int, ...]] = []

    def look(life: Any, moment: str, round_: int) -> None:
        seen.append(life.trainer.resting)

    resumed = make(resume=True, fate=look).run()
    assert resumed.begun == [4, 4, 4]
    assert set(seen[:2]) == {(2,)}
