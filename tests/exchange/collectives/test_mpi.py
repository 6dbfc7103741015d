"""The collectives over a real MPI: 3 processes on this machine."""

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


@contextmanager
def ranks(count: int) -> Iterator[tuple[subprocess.Popen[str], list[subprocess.Popen[str]]]]:
    """As `esync.launch` starts them: by a process manager of this project, each by itself; it, and the ranks."""
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


def test_ranks_meet_without_mpiexec() -> None:
    with ranks(3) as (manager, processes):
        for process in processes:
            output, _ = process.communicate(timeout=60)
            assert process.returncode == 0, output
            assert output.splitlines() == ["begun", "fine"]
        assert manager.wait(10) == 0  # everybody has come and gone


def test_ranks_meet_after_a_job_that_was_killed_and_beside_another() -> None:
    """MPICH's shared memory bears the job's name, and stays behind when its ranks are killed."""
    with ranks(3) as (_, processes):
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
    with ranks(2) as (_, one), ranks(3) as (_, other):
        for process in (*one, *other):
            output, _ = process.communicate(timeout=60)
            assert (process.returncode, output.splitlines()) == (0, ["begun", "fine"]), output
