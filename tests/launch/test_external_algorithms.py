"""Algorithms from outside the package that fail or are missing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import launching
import pytest
from launching import Launch, write
from test_launched_jobs import run

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


def test_launch_with_missing_algorithm_file_names_it(tmp_path):
    file = write(tmp_path / "cluster.yaml", launching.description([0.05], **{**TRAIN, "mode": "halfwy.py:Halfway"}))
    with pytest.raises(DescriptionError, match=r"cluster.yaml:20: train.mode: .*halfwy.py is not there"):
        read(file)
    assert "halfwy.py is not there" in refused(tmp_path, file, "--mode", "halfwy.py:Halfway", code=2)
