"""`esync init`: what it writes, and that it runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from esync.launch.description import read
from esync.starter import ONE_WORKER, PROJECT
from tests.data import tiny_dataset
from tests.support import child


def init(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "esync", "init", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, env=child.environment())


def test_init_writes_description_with_the_workers_that_were_asked_for(tmp_path):
    assert ONE_WORKER in (PROJECT / "cluster.yaml").read_text(encoding="utf-8")
    result = init(tmp_path, "new/project", "--workers", "5")
    assert (result.returncode, result.stderr) == (0, "")
    description = read(tmp_path / "new" / "project" / "cluster.yaml")
    assert len(description.workers) == 5
    assert description.program == ("python", "train.py")
    for command in ("cd new/project\n", "esync doctor cluster.yaml ", "esync launch cluster.yaml "):
        assert command in result.stdout


@pytest.mark.parametrize("name", ["cluster.yaml", "train.py"])
def test_init_with_existing_file_writes_nothing(tmp_path, name):
    (tmp_path / name).write_text("mine")
    result = init(tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"{name} exists already" in result.stderr
    assert (tmp_path / name).read_text() == "mine"
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("workers", ["0", "65", "-1", "many"])
def test_init_with_impossible_number_of_workers_is_refused(tmp_path, workers):
    result = init(tmp_path, f"--workers={workers}")
    assert result.returncode == 2
    assert "expected a number from 1 to 64" in result.stderr
    assert not os.listdir(tmp_path)


def test_init_in_place_of_a_file_is_told_without_traceback(tmp_path):
    (tmp_path / "taken").write_text("")
    result = init(tmp_path, "taken")
    assert result.returncode == 1
    assert "taken: File exists" in result.stderr
    assert "Traceback" not in result.stderr


def test_init_project_trains_under_launch_and_alone(tmp_path):
    assert init(tmp_path, "--workers", "2").returncode == 0
    tiny_dataset.write(tmp_path / "data")
    environment = child.environment(OMP_NUM_THREADS="1", PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    def run(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=150, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr

    words = ("python", "train.py", "--epochs", "3", "--batch-size", "4")
    run("-m", "esync", "launch", "cluster.yaml", "--", *words)
    assert (tmp_path / "logs" / "train" / "esync" / "report.html").is_file()
    run(*words[1:])
