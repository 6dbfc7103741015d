"""The collectives over a real MPI: 3 processes on this machine."""

import sys
from pathlib import Path

import pytest

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
