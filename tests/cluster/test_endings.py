"""How users' programs end: by an error, an exit code, a signal, or before the run is finished.

Two workers of unequal speed, of which worker 1 ends; nobody has promised to replace it. --long
adds further ways to end in each mode.
"""

import re
import signal
import time
from pathlib import Path

import pytest

from ..support.variants import variants
from .harness import SCRIPTS, Cluster

PROGRAM = str(SCRIPTS / "ending_program.py")
WORKERS = [f"worker-{rank}" for rank in range(2)]

#: How worker 1 ends → its exit code, and what the others say of it.
FAILURES = {
    "raise": (1, r"worker 1: ValueError: the picture"),
    "exit": (3, r"worker 1: exit code 3"),
    "SIGINT": (-signal.SIGINT, r"worker 1: interrupted \(SIGINT\)"),
    "SIGKILL": (-signal.SIGKILL, r"worker 1 at 127\.0\.0\.1:\d+ is gone: its connection has ended, .*"),
    "SIGTERM": (-signal.SIGTERM, r"worker 1 at 127\.0\.0\.1:\d+ is gone: its connection has ended, .*"),
}


def start(cluster: Cluster, algorithm: str, how: str, *options: str) -> None:
    """Start the workers, and a state server for those who ask one."""
    if algorithm == "esync":
        cluster.environment["ESYNC_STATE_SERVER"] = f"127.0.0.1:{cluster.start_state_server()}"
    for rank in range(2):
        cluster.start_worker(rank, [PROGRAM, algorithm, how, "1", *options], interpreter=rank == 1)


def await_no_children(cluster: Cluster) -> None:
    """Wait until the groups of the workers' processes are empty; zombies do not count."""
    groups = {cluster.processes[name].pid for name in WORKERS}
    while True:
        survivors = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                try:
                    state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
                except OSError:
                    continue  # it has ended meanwhile
                if int(group) in groups and state != "Z":
                    survivors.append(int(folder.name))
        if not survivors:
            return
        assert time.monotonic() < cluster.deadline, f"left over: {survivors}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("how", "algorithm", "options"),
    [
        *variants(((how, "sync", []) for how in FAILURES), quick=["exit"]),
        *variants(((how, "esync", ["with", "loader"]) for how in FAILURES if how != "SIGTERM"), quick=["raise"]),
        *variants([("raise", "async", [])], quick=[]),
    ],
)
def test_worker_that_fails_ends_all_with_its_reason(
    tmp_path: Path, how: str, algorithm: str, options: list[str]
) -> None:
    code, reason = FAILURES[how]
    with Cluster(tmp_path, 2) as cluster:
        start(cluster, algorithm, how, *options)
        assert cluster.wait("worker-1") == code, cluster.output("worker-1")
        assert "terminate called" not in cluster.output("worker-1")  # MXNet aborts where its threads outlive Python
        assert cluster.wait("worker-0") == 1
        output = cluster.output("worker-0")
        assert re.fullmatch(rf"esync\.exchange\.base\.JobAbortedError: {reason}", output.splitlines()[-1]), output
        assert len(re.findall(reason, output)) == 1, output
        await_no_children(cluster)
        assert cluster.wait("server-0") == 1
        assert re.search(reason, cluster.output("server-0"))
        assert cluster.wait("scheduler") == 0


@pytest.mark.parametrize(
    ("algorithm", "options"),
    variants([("sync", []), ("esync", ["with", "loader"]), ("async", ["with"])], quick=["esync"]),
)
def test_worker_that_ends_before_the_run_is_finished_stops_it(
    tmp_path: Path, algorithm: str, options: list[str]
) -> None:
    with Cluster(tmp_path, 2) as cluster:
        start(cluster, algorithm, "return", *options)
        cluster.finish()
        for name in WORKERS:
            stops, finished = name == "worker-1", name != "worker-1"
            output = cluster.output(name)
            assert ("worker 1 ends before the run is finished: all workers end" in output) is stops, output
            assert ("finished after round" in output) is finished, output
        await_no_children(cluster)
        assert cluster.wait("server-0") == 0


def test_thread_that_trains_and_fails_ends_the_run(tmp_path: Path) -> None:
    """The exit code of such a program is its main thread's."""
    with Cluster(tmp_path, 2) as cluster:
        start(cluster, "sync", "thread")
        for name in WORKERS:
            assert cluster.wait(name) == 0
        last_line = cluster.output("worker-0").splitlines()[-1]
        assert last_line.endswith("JobAbortedError: worker 1: ValueError: the picture")
        assert cluster.wait("server-0") == 1


def test_forked_process_does_not_speak_for_its_worker(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        start(cluster, "sync", "fork")
        cluster.finish()
        assert cluster.output("worker-1") == "forked, 4\nfinished after round 7\n"


#: As Python 3.12 does when a program has come to its end.
NO_MORE_THREADS = """
import atexit, runpy, sys, threading
def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
atexit.register(setattr, threading.Thread, "start", refuse)
"""


def test_worker_that_can_start_no_thread_any_more_takes_its_leave(tmp_path: Path) -> None:
    with Cluster(tmp_path, 1) as cluster:
        cluster.start_worker(0, ["-c", NO_MORE_THREADS, PROGRAM, "sync", "return", "0"], interpreter=True)
        cluster.finish()
        assert "RuntimeError" not in cluster.output("worker-0")
        assert cluster.wait("server-0") == 0
