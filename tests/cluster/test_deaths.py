"""Workers, servers and schedulers that are killed in real clusters."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

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
KILLS = {"esync": ([0, 1, 1], 14), "sync": ([1], 8), "async": ([0, 1], 50), "dcasgd": ([1], 40)}


@pytest.mark.parametrize("mode", KILLS)
def test_workers_that_are_killed_are_replaced(tmp_path: Path, mode: str) -> None:
    kills, number = KILLS[mode]
    with Cluster(tmp_path, 2) as cluster:
        address = ["-ip", "127.0.0.1", "-port", str(cluster.start_state_server())] if mode == "esync" else []
        ends = ["--rounds", str(number), "--step-time", "0.3"]
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
