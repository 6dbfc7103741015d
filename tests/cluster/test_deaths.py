"""Workers, servers and schedulers that are killed in real clusters."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from esync.rendezvous import messages

from ..rendezvous.nodes import FakeNode
from .harness import Cluster
from .test_worker_program import MODES, rounds

WORKER = ["-m", "esync.worker", "-c", "1", "-n", "lenet", "-b", "16", "--no-evaluation"]


def until(cluster: Cluster, condition: Callable[[], object]) -> None:
    """Wait for something to happen while the cluster runs."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "\n".join(cluster.output(name)[-1000:] for name in cluster.processes)
        time.sleep(0.02)


def kill(cluster: Cluster, name: str) -> None:
    cluster.processes[name].kill()
    cluster.processes[name].wait()


#: Mode → who is killed, one after the other, and rounds. MXNet's own scheduler does not survive the second replacement.
KILLS = {"esync": ([0, 1, 1], 14), "sync": ([1], 8), "async": ([0, 1], 100), "dcasgd": ([1], 40)}


@pytest.mark.parametrize("mode", KILLS)
def test_workers_that_are_killed_are_replaced(tmp_path: Path, mode: str) -> None:
    kills, number = KILLS[mode]
    with Cluster(tmp_path, 2) as cluster:
        address = ["-ip", "127.0.0.1", "-port", str(cluster.start_state_server())] if mode == "esync" else []
        ends = ["--rounds", str(number), "--step-time", "0.3", "--wait-for-replacement", "60"]
        arguments = [
            [*WORKER, *MODES[mode], *address, "-ld", str(tmp_path / f"logs-{rank}"), *ends] for rank in range(2)
        ]
        for rank in range(2):
            cluster.start_worker(rank, arguments[rank])
        until(cluster, lambda: all(rounds(tmp_path / f"logs-{rank}" / "cpu") for rank in range(2)))
        for rank in kills:
            kill(cluster, f"worker-{rank}")
            cluster.start(f"worker-{rank}", arguments[rank])
            until(cluster, lambda rank=rank: f"worker {rank} of 2" in cluster.output(f"worker-{rank}"))
        cluster.finish()
    facts = [json.loads((tmp_path / f"logs-{rank}" / "cpu" / "run.json").read_text()) for rank in range(2)]
    assert [fact["rank"] for fact in facts] == [0, 1]
    assert all(fact["finished"] for fact in facts)
    logs = [rounds(tmp_path / f"logs-{rank}" / "cpu") for rank in range(2)]
    lasts = [log[-1]["num_iters"] for log in logs]
    if mode in ("esync", "sync"):
        assert lasts == [number, number]
    else:
        assert sum(lasts) == 2 * number  # commits
    for log, last in zip(logs, lasts, strict=True):
        assert last - len(kills) <= len(log) <= last  # the round in whose exchange a worker dies may not be logged
        times = [entry["total_time"] for entry in log]
        assert times == sorted(times)
    assert not list(tmp_path.glob("logs-*/cpu/earlier-*"))


@pytest.mark.parametrize("victim", ["server-0", "scheduler"])
def test_workers_end_when_a_server_or_the_scheduler_is_killed(tmp_path: Path, victim: str) -> None:
    with Cluster(tmp_path, 2) as cluster:
        for rank in range(2):
            more = ["--step-time", "0.1", "--rounds", "100000", "-ld", str(tmp_path / f"logs-{rank}")]
            cluster.start_worker(rank, [*WORKER, *MODES["sync"], *more])
        until(cluster, lambda: rounds(tmp_path / "logs-0" / "cpu"))
        kill(cluster, victim)
        for rank in range(2):
            assert cluster.wait(f"worker-{rank}") == 1
            name = "the parameter server" if victim == "server-0" else "the scheduler"
            assert f"error: {name} at 127.0.0.1:" in cluster.output(f"worker-{rank}")
            assert "Traceback" not in cluster.output(f"worker-{rank}")


#: Mode → flags with which a round has many iterations, or one.
UNREPLACED = {"sync": (), "async": (), "local-sgd": ("--local-iterations", "1000")}


@pytest.mark.parametrize("mode", UNREPLACED)
def test_a_worker_that_nobody_replaces_ends_the_run_by_its_name(tmp_path: Path, mode: str) -> None:
    ends = ["--rounds", "100000", "--no-export", "--step-time", "0.1"]
    with Cluster(tmp_path, 3, servers=2) as cluster:
        for rank in range(3):
            logs = ["-ld", str(tmp_path / f"logs-{rank}")]
            cluster.start_worker(rank, [*WORKER, "-m", mode, *UNREPLACED[mode], *ends, *logs])
        until(cluster, lambda: all(f"worker {rank} of 3" in cluster.output(f"worker-{rank}") for rank in range(3)))
        kill(cluster, "worker-2")
        for name in ("worker-0", "worker-1", "server-0", "server-1"):
            assert cluster.wait(name) == 1
            said = cluster.output(name)
            assert re.search(r"worker 2 at 127\.0\.0\.1:\d+ is gone: its connection has ended, and nobody", said), said
            assert "Traceback" not in said
        assert cluster.wait("scheduler") == 0


def test_when_all_workers_are_gone_the_servers_end_by_their_names(tmp_path: Path) -> None:
    with Cluster(tmp_path, 1) as cluster:
        cluster.start_worker(0, [*WORKER, "-m", "sync", "--rounds", "100000", "-ld", str(tmp_path / "logs")])
        until(cluster, lambda: "worker 0 of 1" in cluster.output("worker-0"))
        kill(cluster, "worker-0")
        assert cluster.wait("server-0") == 1
        assert "worker 0 at 127.0.0.1:" in cluster.output("server-0")
        assert cluster.wait("scheduler") == 0


def test_a_replacement_is_waited_for_as_long_as_was_asked(tmp_path: Path) -> None:
    """The first one comes in time, the second one does not come."""
    ends = ["--rounds", "100000", "--no-export", "--step-time", "0.1", "--wait-for-replacement", "20"]
    with Cluster(tmp_path, 2) as cluster:
        arguments = [[*WORKER, "-m", "sync", *ends, "-ld", str(tmp_path / f"logs-{rank}")] for rank in range(2)]
        for rank in range(2):
            cluster.start_worker(rank, arguments[rank])
        until(cluster, lambda: all(rounds(tmp_path / f"logs-{rank}" / "cpu") for rank in range(2)))
        kill(cluster, "worker-1")
        cluster.start("worker-1", [*arguments[1], "--wait-for-replacement", "1"])
        until(cluster, lambda: "worker 1 of 2" in cluster.output("worker-1"))
        kill(cluster, "worker-1")
        assert cluster.wait("worker-0") == 1
        assert "worker 1 at 127.0.0.1:" in cluster.output("worker-0")
        assert "no replacement has come within 1 s (--wait-for-replacement)" in cluster.output("worker-0")


#: Moment → a worker that dies then: when all have met, with its greeting said, or with the shared keys set up.
BEFORE_THE_START = {
    "met": "MXNetStore.greet",
    "greeted": "MXNetStore.share",
    "half-way": "MXNetStore._meet",
}


@pytest.mark.parametrize("moment", BEFORE_THE_START)
def test_a_first_worker_that_dies_before_the_run_has_begun_ends_it_by_its_name(tmp_path: Path, moment: str) -> None:
    flags = [*WORKER[2:], "-m", "sync", "--rounds", "3", "--no-export", "-ld", str(tmp_path / "logs")]
    dies = (
        "import os, sys; from esync.exchange.keystores.mxnet_store import MXNetStore; "
        f"{BEFORE_THE_START[moment]} = lambda *_: os.kill(os.getpid(), 9); "
        "from esync.worker import main; sys.exit(main())"
    )
    with Cluster(tmp_path, 3, servers=2) as cluster:
        cluster.start_worker(0, ["-c", dies, *flags])
        for rank in (1, 2):
            cluster.start_worker(rank, ["-m", "esync.worker", *flags])
        for name in ("worker-1", "worker-2", "server-0", "server-1"):
            assert cluster.wait(name) == 1
        for rank in (1, 2):
            said = cluster.output(f"worker-{rank}")
            assert re.search(r"worker 0 at 127\.0\.0\.1:\d+ is gone: its connection has ended before the run", said), (
                said
            )
            assert "Traceback" not in said
        assert cluster.wait("scheduler") == 1


def test_one_that_dies_between_its_id_and_the_start_barrier_ends_the_run_by_its_name(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        flags = ["-m", "sync", "--rounds", "3", "--no-export", "-ld", str(tmp_path / "logs")]
        cluster.start_worker(0, [*WORKER, *flags])
        with FakeNode(int(cluster.environment["DMLC_PS_ROOT_PORT"]), messages.WORKER) as victim:
            assert victim.received() is not None
        for name in ("worker-0", "server-0"):
            assert cluster.wait(name) == 1
            assert f"at 127.0.0.1:{victim.port} is gone: its connection has ended before" in cluster.output(name)
        assert cluster.wait("scheduler") == 1


def test_a_worker_of_another_version_is_told_so(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        for rank in range(2):
            program = (
                f"import sys, esync.version as v; v.__version__ = '9.{rank}'; from esync.worker import main; "
                "sys.exit(main())"
            )
            cluster.start_worker(
                rank, ["-c", program, *WORKER[2:], *MODES["sync"], "--rounds", "2", "-ld", str(tmp_path / "logs")]
            )
        cluster.finish(expected=1)
        assert "version 9.0 instead of 9.1" in cluster.output("worker-0") or (
            "version 9.1 instead of 9.0" in cluster.output("worker-0")
        )
