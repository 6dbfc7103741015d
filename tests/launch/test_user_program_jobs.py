"""Whole jobs of a user's own program: real schedulers, servers, state servers, and a real sshd."""

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from launching import Start, description
from sshd import ADDRESSES, Sshd
from test_launched_jobs import rounds

from tests.support import child
from tests.support.json_files import read_json

pytestmark = pytest.mark.timeout(400)
#: Seconds for what takes ten on a machine with nothing else to do.
LONG = 180
STEPS = [0.05, 0.1, 0.2]
SOURCE = Path(__file__).with_name("own_program.py")


def cluster(steps: list[float] = STEPS, hosts: list[str] | None = None) -> dict[str, Any]:
    """A cluster that trains nothing in particular."""
    return {**description(steps, hosts), "train": {}}


def program(folder: Path) -> Path:
    """The program, in this folder."""
    return Path(shutil.copy(SOURCE, folder / "train.py"))


def worker_log(folder: Path, worker: int) -> str:
    """What a worker has printed."""
    return (folder / f"processes/worker-{worker}.log").read_text()


def test_own_program_trains_is_replaced_and_leaves_logs_and_figures(tmp_path, data_dir, launch: Start):
    program(tmp_path)
    words = ("--json", "job.json", "-m", "esync", "--", "python", "train.py", str(data_dir), "40")
    job = launch(cluster(), *words)
    folder = tmp_path / "logs/train/esync"
    job.until(lambda: (folder / "right/cpu/iter-3.txt").exists(), LONG)
    os.kill(job.worker(1, " train.py "), signal.SIGKILL)
    job.finish()
    assert "worker-1 (right/cpu) was ended by SIGKILL" in job.output
    assert re.search(r"workers: .*3 training  round \d+", job.output)

    devices = ["left/cpu", "right/cpu", "left/cpu-1"]
    assert [rounds(folder / device)[-1] for device in devices] == [40] * 3
    runs = [read_json(folder / device / "run.json") for device in devices]
    assert [run["rank"] for run in runs] == [0, 1, 2]
    for number in range(3):
        assert f"I am worker {number} of 3, esync\nepoch 1: 10 %" in worker_log(folder, number)
        assert "@event" not in worker_log(folder, number)
        assert "@progress" not in worker_log(folder, number)
    report = read_json(tmp_path / "job.json")
    assert (report["network"], report["program"][:2], report["mode"]) == ("train", ["python", "train.py"], "esync")
    assert [replacement["name"] for replacement in report["replacements"]] == ["worker-1"]
    assert report["replacements"][0]["joined"] is not None
    assert report["figures"]["rounds"] == 40
    assert report["figures"]["speed_limit"] == pytest.approx(sum(8 / step for step in STEPS))
    assert report["figures"]["final_accuracy"] is not None
    assert "test accuracy" in job.output


def test_own_program_with_the_same_error_again_ends_the_job_at_its_first_replacement(tmp_path, data_dir, launch: Start):
    program(tmp_path)
    words = ("-m", "sync", "--", "python", "train.py", str(data_dir), "5", "raise")
    job = launch(cluster(STEPS[:2]), *words)
    job.finish(1)
    assert job.output.count("starting a replacement") == 1
    reason = "by the same error at the same place as the process that it replaced: it would happen again"
    assert f"worker-1 (right/cpu) ended with exit code 1, {reason}; the end of " in job.output
    assert "ValueError: no such picture" in job.output


def run_alone(folder: Path, *words: str, **variables: str) -> Any:
    """Run the program by hand, with nothing of a cluster in its environment but these variables."""
    return child.run("train.py", *words, timeout=LONG, cwd=folder, **variables)


def test_program_alone_trains_in_mode_local_and_says_so(tmp_path, data_dir):
    program(tmp_path)
    alone = run_alone(tmp_path, str(data_dir), "5")
    assert alone.returncode == 0, alone.stderr
    line = "no DMLC_* variable is set, so there is no cluster: training alone, in mode local"
    assert alone.stderr.splitlines().count(line) == 1
    assert "I am worker 0 of 1, local" in alone.stdout
    half = run_alone(tmp_path, str(data_dir), "5", DMLC_NUM_WORKER="3")
    assert half.returncode == 1
    assert "DMLC_PS_ROOT_URI is not set: it is the address of the scheduler" in half.stderr
    wrong = run_alone(tmp_path, str(data_dir), "5", ESYNC_DEVICE="gpu99")
    assert wrong.returncode == 1
    assert re.search(r"ESYNC_DEVICE is gpu99: this machine and this build of MXNet have \d+ GPU", wrong.stderr)


def test_own_program_over_ssh_trains_and_is_not_replaced_when_it_fails_after_the_run(
    tmp_path, data_dir, sshd: Sshd, launch: Start
):
    content = cluster([0.05, 0.1], ["right", "left"])  # by their addresses they would be the other way round
    content["hosts"] = {name: sshd.entry(name, workdir=str(tmp_path / name)) for name in ADDRESSES}
    for name in ADDRESSES:
        (tmp_path / name).mkdir()
    words = (
        "--log-dir",
        "base",
        "--name",
        "first",
        "-m",
        "sync",
        "--",
        "python",
        "train.py",
        str(data_dir),
        "6",
        "late",
    )

    program(tmp_path / "right")
    absent = launch(content, *words)
    assert absent.wait(LONG) == 1
    where = re.escape(f"a relative path begins in {tmp_path / 'left'}")
    assert re.search(rf"host left: there is no file train\.py; copy it there; {where}", absent.output), absent.output
    assert "host right" not in absent.output

    program(tmp_path)
    program(tmp_path / "left").write_text("print('an older one')")
    older = launch(content, *words)
    assert older.wait(LONG) == 1
    assert re.search(r"host left: train\.py differs from the one where launch runs", older.output), older.output

    program(tmp_path / "left")
    job = launch(content, *words)
    job.finish(1)
    failed = r"worker-1 \(left/cpu\) ended with exit code 1; the end of .*\n(.*\n)*.*the disk is full"
    assert re.search(failed, job.output), job.output
    assert "replacement" not in job.output
    folder = tmp_path / "base/train/sync@first"
    for number, name in enumerate(("right", "left")):
        assert f"I am worker {number} of 2, sync" in worker_log(folder, number)
        assert rounds(folder / name / "cpu") == [1, 2, 3, 4, 5, 6]  # copied
        assert read_json(folder / name / "cpu/run.json")["rank"] == number
