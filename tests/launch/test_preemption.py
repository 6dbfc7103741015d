"""Jobs whose machines are taken away: a checkpoint of the round under way, exit code 75, and no round lost."""

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from launching import Start, description
from test_launched_jobs import rounds
from test_plan import make

from esync.launch.description import DescriptionError

pytestmark = pytest.mark.timeout(300)
LIMIT = 120  # seconds for one job


def cluster(data_dir: Path, notice: float, **train: Any) -> dict[str, Any]:
    """Two workers in mode sync, unless `train` says otherwise, each of which writes a checkpoint at the end only."""
    common = {"mode": "sync", "rounds": 30, "data_dir": str(data_dir), "no_evaluation": True, "checkpoint_dir": "kept"}
    return {**description([0.1, 0.2], **{**common, **train}), "preemption_notice": notice}


def test_preempted_job_goes_on_without_losing_a_round(tmp_path, data_dir, launch: Start):
    content = cluster(data_dir, 60)
    folder = tmp_path / "logs/lenet/sync/left/cpu"
    job = launch(content, "--resume")
    job.until(lambda: len(rounds(folder)) >= 3)
    job.process.send_signal(signal.SIGUSR1)
    job.finish(os.EX_TEMPFAIL)
    assert "SIGUSR1: the workers have 60 s to write a checkpoint and end" in job.output
    reached = rounds(folder)[-1]
    assert 3 <= reached < 30
    assert f"preempted: checkpoint of round {reached} in kept" in job.output.replace(f"{tmp_path}/", "")
    assert not (tmp_path / "kept/model").exists()

    again = launch(content, "--resume")
    again.finish()
    assert rounds(folder) == list(range(1, 31))
    assert (tmp_path / "kept/model/model.params").exists()


@pytest.mark.parametrize(("notice", "number"), [(1, signal.SIGUSR1), (600, signal.SIGTERM)])
def test_job_that_does_not_end_in_its_time_or_is_told_twice_is_ended(tmp_path, data_dir, launch: Start, notice, number):
    content = cluster(data_dir, notice)
    content["workers"][1]["step_time"] = 10.0
    job = launch(content)
    job.until(lambda: bool(list(tmp_path.rglob("run.json"))), LIMIT)
    began = time.monotonic()
    job.process.send_signal(number)
    job.until(lambda: f"{number.name}: the workers have" in job.output)
    if notice > 1:
        job.process.send_signal(number)
    assert job.wait(LIMIT) == os.EX_TEMPFAIL, job.output
    assert time.monotonic() - began < 15
    assert ("not all workers have ended within 1 s" in job.output) == (notice == 1)
    assert job.gone_within(10) == {}


def test_notice_needs_checkpoints(data_dir):
    content = cluster(data_dir, 30)
    del content["train"]["checkpoint_dir"]
    with pytest.raises(DescriptionError, match="preemption_notice: there is nothing to go on from without"):
        make(content)


def test_checkpoint_that_cannot_be_written_fails_the_job(tmp_path, data_dir, launch: Start):
    job = launch(cluster(data_dir, 60))
    job.until(lambda: bool(list(tmp_path.rglob("iter-3.txt"))))
    shutil.rmtree(tmp_path / "kept")
    (tmp_path / "kept").touch()
    job.process.send_signal(signal.SIGTERM)
    job.finish(1)
    assert "cannot write a checkpoint" in job.output


@pytest.mark.parametrize(("place", "number"), [("check_hosts", signal.SIGUSR1), ("report.write_page", signal.SIGTERM)])
def test_notice_while_no_process_runs_has_the_same_exit_code(data_dir, launch: Start, place, number):
    program = (
        "import os, sys; from esync.launch import command\n"
        f"command.{place} = lambda *_: os.kill(os.getpid(), {int(number)})\n"
        "sys.exit(command.main(sys.argv[1:]))"
    )
    job = launch(cluster(data_dir, 60, rounds=1), command=("-c", program))
    job.finish(os.EX_TEMPFAIL)
    assert f"launch: preempted by {number.name}: the same command with --resume goes on" in job.output
