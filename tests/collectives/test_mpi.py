"""The collectives over a real MPI: 3 processes on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from esync.collectives.process_manager import READY

from . import mpiexec

RANKS = str(Path(__file__).with_name("ranks.py"))


@pytest.fixture(autouse=True, scope="module")
def _mpi() -> None:
    if reason := mpiexec.why_not():
        pytest.skip(reason)


def run(case: str) -> tuple[int, str]:
    return mpiexec.run(3, [[sys.executable, RANKS, case]])


@pytest.mark.parametrize("case", ["sums", "store", "work"])
def test_works(case: str) -> None:
    code, output = run(case)
    assert code == 0, output
    assert output.count("fine") == 3, output


def test_a_rank_that_dies_ends_the_job() -> None:
    code, output = run("die")
    assert code != 0
    assert output.count("begun") == 3, output
    assert "KILLED" in output.upper(), output
    assert "fine" not in output


def test_a_rank_that_hangs_ends_the_job_with_its_name() -> None:
    code, output = run("hang")
    assert code != 0
    assert "the commit of worker 1" in output, output


def test_ranks_meet_without_mpiexec() -> None:
    """As `esync.launch` starts them: by a process manager of this project, each by itself."""
    python = [sys.executable, "-m", "esync.collectives.process_manager", "--ranks", "3"]
    with subprocess.Popen(python, stdout=subprocess.PIPE, text=True) as manager:
        assert manager.stdout is not None
        try:
            address = manager.stdout.readline().removeprefix(READY).strip()
            ranks = [
                subprocess.Popen(
                    [sys.executable, RANKS, "work"],
                    env={**os.environ, "PMI_PORT": address, "PMI_ID": str(rank)},
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for rank in range(3)
            ]
            for rank in ranks:
                output, _ = rank.communicate(timeout=60)
                assert rank.returncode == 0, output
                assert output.splitlines() == ["begun", "fine"]
            assert manager.wait(10) == 0  # everybody has come and gone
        finally:
            for process in (manager, *ranks):
                process.kill()
