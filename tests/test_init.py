"""`esync init`: what it writes, and that it runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from esync.launch.description import read
from esync.starter import ONE_WORKER, PROJECT, main
from tests.data import tiny_dataset
from tests.support import child


@pytest.fixture
def init(tmp_path, monkeypatch, capsys):
    """Run `esync init` in an empty folder; what it returns and prints."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return call


def test_init_writes_description_with_the_workers_that_were_asked_for(init, tmp_path):
    assert ONE_WORKER in (PROJECT / "cluster.yaml").read_text(encoding="utf-8")
    code, output, errors = init("new/project", "--workers", "5")
    assert (code, errors) == (0, "")
    description = read(tmp_path / "new" / "project" / "cluster.yaml")
    assert len(description.workers) == 5
    assert description.program == ("python", "train.py")
    for command in ("cd new/project\n", "esync doctor cluster.yaml ", "esync launch cluster.yaml "):
        assert command in output


@pytest.mark.parametrize("name", ["cluster.yaml", "train.py"])
def test_init_with_existing_file_writes_nothing(init, tmp_path, name):
    (tmp_path / name).write_text("mine")
    code, output, error = init()
    assert (code, output) == (1, "")
    assert f"{name} exists already" in error
    assert (tmp_path / name).read_text() == "mine"
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("workers", ["0", "65", "-1", "many"])
def test_init_with_impossible_number_of_workers_is_refused(init, tmp_path, workers):
    code, _, error = init(f"--workers={workers}")
    assert code == 2
    assert "expected a number from 1 to 64" in error
    assert not os.listdir(tmp_path)


def test_init_in_place_of_a_file_is_told_without_traceback(init, tmp_path):
    (tmp_path / "taken").write_text("")
    code, _, error = init("taken")
    assert code == 1
    assert "taken: File exists" in error


def test_init_project_trains_under_launch_and_alone(tmp_path):
    tiny_dataset.write(tmp_path / "data")
    environment = child.environment(OMP_NUM_THREADS="1", PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    def run(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=150, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr

    run("-m", "esync", "init", "--workers", "2")
    words = ("python", "train.py", "--epochs", "3", "--batch-size", "4")
    run("-m", "esync", "launch", "cluster.yaml", "--", *words)
    assert (tmp_path / "logs" / "train" / "esync" / "report.html").is_file()
    run(*words[1:])
