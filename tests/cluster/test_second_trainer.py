"""Two Trainers in one process, of which ps-lite supports one at a time.

--long adds trainers that are closed, and notebooks.
"""

from pathlib import Path

import pytest

from .harness import SCRIPTS, Cluster

SECOND = str(SCRIPTS / "second_trainer.py")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("open", "one Trainer per process; train further networks with optimizers of the same Trainer"),
        pytest.param("closed", "cannot come back", marks=pytest.mark.long),
        pytest.param("cell", "go on with that one", marks=pytest.mark.long),
    ],
)
def test_second_trainer_in_a_process_is_refused_with_what_to_do(tmp_path: Path, what: str, words: str) -> None:
    with Cluster(tmp_path, workers=1, seconds=60) as cluster:
        cluster.start_worker(0, [SECOND, what])
        cluster.finish()
        assert words in cluster.output("worker-0")
        assert "waiting for" not in cluster.output("worker-0")


def test_second_job_in_a_process_may_follow_one_that_was_left(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    with Cluster(tmp_path / "first", workers=1) as first, Cluster(tmp_path / "second", workers=1) as second:
        first.start_worker(0, [SECOND, second.environment["DMLC_PS_ROOT_PORT"]])
        first.finish()
        second.finish()
        assert first.output("worker-0").splitlines() == ["[[0.0, 0.0]]", "[[2.0, 2.0]]"]
