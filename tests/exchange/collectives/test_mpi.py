"""Collectives over a real MPI with three processes on this machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from esync.exchange.collectives.process_manager import READY

from . import mpiexec

RANKS = str(Path(__file__).with_name("ranks.py"))


@pytest.fixture(autouse=True, scope="module")
def _mpi() -> None:
    if reason := mpiexec.why_not():
        pytest.skip(reason)


def run(case: str, **environment: str) -> tuple[int, str]:
    return mpiexec.run(3, [[sys.executable, RANKS, case]], **environment)


def test_mpi_transport_sums_on_three_ranks() -> None:
    code, output = run("sums")
    assert code == 0, output
    assert output.count("fine") == 3, output


@pytest.mark.parametrize("case", ["crowded", "uncrowded"])
def test_mpi_ranks_are_crowded_where_they_share_a_core(case: str) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one core")
    code, output = mpiexec.run(2, [[sys.executable, RANKS, case]])
    assert code == 0, output


def test_mpi_rank_that_dies_ends_the_job() -> None:
    code, output = run("die")
    assert code != 0
    assert output.count("begun") == 3, output
    assert "KILLED" in output.upper(), output
    assert "fine" not in output


def test_mpi_rank_that_hangs_ends_the_job_and_is_named() -> None:
    code, output = run("hang")
    assert code != 0
    assert "the commit of worker 1" in output, output


@contextmanager
def ranks(count: int) -> Iterator[tuple[subprocess.Popen[str], list[subprocess.Popen[str]]]]:
    """Start ranks as `esync.launch` does; return the process manager, and the ranks.

    The process manager is this project's, and each rank is started by itself.
    """
    python = [sys.executable, "-m", "esync.exchange.collectives.process_manager", "--ranks", str(count)]
    with ExitStack() as stack:

        def start(command: list[str], **environment: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        manager = start(python)
        assert manager.stdout is not None
        address = manager.stdout.readline().removeprefix(READY).strip()
        yield (
            manager,
            [start([sys.executable, RANKS, "work"], PMI_PORT=address, PMI_ID=str(rank)) for rank in range(count)],
        )


def test_mpi_ranks_meet_without_mpiexec_after_a_killed_job_and_beside_another() -> None:
    """MPICH's shared memory is named after the job and stays behind when its ranks are killed."""
    with ranks(3) as (_, processes):
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
    with ranks(2) as (manager, one), ranks(3) as (_, other):
        for process in (*one, *other):
            output, _ = process.communicate(timeout=60)
            assert (process.returncode, output.splitlines()) == (0, ["begun", "fine"]), output
        assert manager.wait(10) == 0  # everybody has come and gone
