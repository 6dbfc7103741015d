"""The lock of a checkpoint directory: it refuses a second run, and a dead run never holds it."""

import errno
import fcntl
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from esync import config
from esync.checkpoints import lock
from esync.checkpoints.lock import RankLock
from esync.checkpoints.store import CheckpointError, CheckpointStore
from esync.exchange import ExchangeError

from ..support import child
from .test_checkpoints import Run, folders, second_worker

#: Another run: three rounds with a checkpoint, then it stays.
TRAIN = (
    child.REST + "import sys\n"
    "from tests.checkpoints.test_checkpoints import Run\n"
    "run = Run(sys.argv[1]).go(4)\n"
    "print('ready', flush=True)\n"
    "sys.stdin.readline()\n"
    "run.trainer.close()\n"
    "print('closed', flush=True)\n"
    "rest()\n"
)
#: A worker of the rank and the job that are given; 0: its job has not begun.
HOLD = (
    child.REST + "import os, sys\n"
    "from pathlib import Path\n"
    "from esync.checkpoints.lock import RankLock\n"
    "held = RankLock(Path(sys.argv[1]), int(sys.argv[2]))\n"
    "held.acquire()\n"
    "held.sign(int(sys.argv[3]))\n"
    "if 'fork' in sys.argv and not os.fork():\n"
    "    sys.stdin.read()\n"
    "    os._exit(0)\n"
    "print('ready', flush=True)\n"
    "rest()\n"
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(config, "CHECKPOINTS_IN_USE", 0.0)


@contextmanager
def held(directory: Path, rank: int = 0, job: int = 0, *how: str):
    with child.started("-c", HOLD, str(directory), str(rank), str(job), *how) as process:
        yield process


def test_lock_refuses_a_second_run_that_then_changes_nothing(tmp_path):
    with child.started("-c", TRAIN, str(tmp_path)) as other:
        half_written = tmp_path / "round-3" / f".worker-0.npz.{other.pid}"
        half_written.touch()
        words = f"another run writes its checkpoints to {tmp_path}: process {other.pid} on .* is its worker 0; wait for"
        for options in ({"resume": True}, {"overwrite": True}, {}):
            with pytest.raises(ExchangeError, match=words):
                Run(tmp_path, **options)
            assert half_written.exists()
        assert [part.round for part in CheckpointStore(tmp_path, 0).parts()] == [3]  # whoever only reads may do so
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "closed\n"  # it lives on, but its run is over
        assert Run(tmp_path, resume=True).checkpoints.resumed == 3


def test_lock_of_a_killed_run_is_free(tmp_path):
    with child.started("-c", TRAIN, str(tmp_path)) as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert Run(tmp_path, resume=True).checkpoints.resumed == 3


def test_lock_is_not_kept_by_forked_processes_of_a_dead_worker(tmp_path):
    """Processes of a data loader are an example."""
    with held(tmp_path, 0, 5, "fork") as other:
        with pytest.raises(CheckpointError, match="another run"):
            RankLock(tmp_path, 0).acquire()
        os.kill(other.pid, signal.SIGKILL)
        os.waitpid(other.pid, 0)
        RankLock(tmp_path, 0).acquire()


def test_lock_of_a_run_that_is_ending_is_waited_for(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(config, "CHECKPOINTS_IN_USE", 60.0)
    with held(tmp_path, 0, 5) as other:

        def ends(seconds: float) -> None:
            other.kill()
            other.wait()

        monkeypatch.setattr(lock.time, "sleep", ends)
        RankLock(tmp_path, 0).acquire()
        assert f"waiting for process {other.pid} on " in caplog.text


@pytest.mark.parametrize("theirs", [5, 0])
def test_lock_of_a_hung_predecessor_does_not_stop_its_replacement(tmp_path, caplog, theirs):
    with held(tmp_path, 1, theirs) as other:
        os.kill(other.pid, signal.SIGSTOP)
        replacement, _ = second_worker(tmp_path, job=5, resume=False)
        refusal = f"another run writes its checkpoints to {tmp_path}: process {other.pid} on "
        assert replacement.checkpoints.offers(1, 2).problem.startswith(refusal)
        assert replacement.checkpoints.settle(1, 5, resume_at=-1, replacement=True) is None
        assert f"process {other.pid} on " in caplog.text
        assert "this worker writes in its place" in caplog.text


def test_lock_of_another_job_stops_a_replacement(tmp_path):
    with held(tmp_path, 1, 6):
        replacement, _ = second_worker(tmp_path, job=5, resume=False)
        with pytest.raises(CheckpointError, match="another run writes its checkpoints to"):
            replacement.checkpoints.settle(1, 5, resume_at=-1, replacement=True)


def test_lock_is_one_per_rank(tmp_path):
    with held(tmp_path, 1, 5):
        RankLock(tmp_path, 0).acquire()


def test_lock_is_shared_within_a_process(tmp_path):
    mine, again = RankLock(tmp_path, 0), RankLock(tmp_path, 0)
    mine.acquire()
    again.acquire()
    mine.release()
    assert taken_elsewhere(tmp_path)
    again.release()
    assert not taken_elsewhere(tmp_path)


def taken_elsewhere(directory: Path) -> bool:
    program = "import fcntl, sys\nfcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    ended = child.run("-c", program, str(directory / ".rank-0.lock"))
    assert not ended.returncode or "BlockingIOError" in ended.stderr
    return bool(ended.returncode)


def test_lock_on_file_system_without_locks_warns_and_continues(tmp_path, monkeypatch, caplog):
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", unsupported)
    Run(tmp_path).go(4)
    assert folders(tmp_path) == {"round-3"}
    assert f"{tmp_path}/.rank-0.lock cannot be locked (No locks available): make sure yourself" in caplog.text
