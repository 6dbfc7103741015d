"""Algorithms from outside the package that fail, are missing, or differ on another host."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launching
import pytest
from launching import Launch, write
from test_launched_jobs import run
from test_ssh import description, machines  # noqa: F401 - a fixture

from esync.launch.description import DescriptionError, read

pytestmark = pytest.mark.timeout(400)

Start = Callable[..., Launch]
#: An algorithm in a file of its own.
HALFWAY = Path(__file__).parents[1] / "algorithms" / "halfway.py"
TRAIN: dict[str, Any] = {
    "mode": "halfway.py:Halfway",
    "pull": 0.25,
    "local_iterations": 3,
    "local_lr": 0.01,
    "rounds": 2,
}


def refused(folder: Path, file: Path, *flags: str, code: int = 1) -> str:
    """What launch says where it does not start a job."""
    done = run(folder, str(file), *flags)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_launch_with_algorithm_that_raises_ends_without_replacement(tmp_path, data_dir, launch: Start):
    """A replacement would raise the same exception again."""
    hook = (
        "    def before_local_step(self, model):\n        if self.steps == 5:\n            raise RuntimeError('boom')\n"
    )
    (tmp_path / "halfway.py").write_text(f"{HALFWAY.read_text()}\n{hook}")
    content = launching.description([0.05], **{**TRAIN, "rounds": 20}, no_evaluation=True, data_dir=str(data_dir))
    job = launch(write(tmp_path / "cluster.yaml", content), "--max-restarts", "3")
    assert job.wait() == 1, job.output
    assert "replacement" not in job.output
    assert 'halfway.py", line' in job.output
    assert "RuntimeError: boom" in job.output


def test_launch_with_algorithm_missing_or_different_on_a_host_names_the_host(tmp_path, data_dir, sshd, machines):  # noqa: F811
    """Checked before anything starts; a host without workers need not have it."""
    shutil.copy(HALFWAY, tmp_path)
    there = sshd.workdir("right") / "halfway.py"
    there.write_text(HALFWAY.read_text() + "\n# once more\n")
    content = description(sshd, [0.05, 0.05], **TRAIN, data_dir=str(data_dir))
    file = write(tmp_path / "cluster.yaml", content)
    said = refused(tmp_path, file)
    left, right = (line for line in said.splitlines() if line.startswith(("launch: error: host", "host")))
    assert f"host left: halfway.py:Halfway: the file {sshd.workdir('left')}/halfway.py is not there" in left
    assert "host right: the source of halfway.py:Halfway there differs from this machine's" in right
    for name, text in (("left", left), ("right", right)):
        assert f"copy halfway.py there; a relative path begins in the host's workdir, {sshd.workdir(name)}" in text

    there.write_text("import no_such_package\n" + HALFWAY.read_text())
    for worker in content["workers"]:
        worker["host"] = "right"  # only the scheduler and the server are on the left one now
    said = refused(tmp_path, write(file, content))
    assert "host left" not in said
    assert "host right: halfway.py:Halfway cannot be imported: halfway.py, line 1: ModuleNotFoundError" in said
    assert "copy" not in said
    assert not (tmp_path / "logs").exists()


def test_launch_with_missing_algorithm_file_names_it(tmp_path):
    file = write(tmp_path / "cluster.yaml", launching.description([0.05], **{**TRAIN, "mode": "halfwy.py:Halfway"}))
    with pytest.raises(DescriptionError, match=r"cluster.yaml:20: train.mode: .*halfwy.py is not there"):
        read(file)
    assert "halfwy.py is not there" in refused(tmp_path, file, "--mode", "halfwy.py:Halfway", code=2)
