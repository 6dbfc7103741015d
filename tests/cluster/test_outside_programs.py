"""Programs that were not written for this package: loops, seeds, key stores and processes of their own.

--long adds further key stores and ways to start processes.
"""

from pathlib import Path

import pytest

from ..support.variants import variants
from .harness import SCRIPTS, outputs_of

PROGRAM = str(SCRIPTS / "outside_program.py")


@pytest.mark.parametrize(("what", "goes_on"), [("loop", False), ("with", True)])
def test_loop_that_never_asks_whether_the_run_is_finished_ends_as_planned(
    tmp_path: Path, what: str, goes_on: bool
) -> None:
    other, first = outputs_of(tmp_path, [[PROGRAM, what]] * 2, interpreter=True)
    assert "worker 1 ends before the run is finished" in first
    assert "worker 0: the run is finished, and this program goes on training" in other
    assert "Traceback" not in other
    assert ("at the end" in other) is goes_on


@pytest.mark.parametrize(
    "what", variants(["before", "dist_sync", "gluon", "dist_device_async", "dist_gsync"], quick=["before", "gluon"])
)
def test_distributed_key_store_of_a_worker_is_refused_with_what_to_write(tmp_path: Path, what: str) -> None:
    for output in outputs_of(tmp_path, [[PROGRAM, what]] * 2, expected=1):
        assert "take trainer.rank and trainer.workers" in output


@pytest.mark.parametrize("what", variants(["spawn", "forkserver", "run"], quick=["spawn"]))
def test_process_in_which_the_program_runs_again_is_no_worker(tmp_path: Path, what: str) -> None:
    (output,) = outputs_of(tmp_path, [[PROGRAM, what]] * 1, interpreter=True)
    assert "WorkerChildError: " in output
    assert output.splitlines()[-1] == "at the end" or "ends before the run is finished" in output
