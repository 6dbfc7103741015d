"""Mode tiered on real clusters: two fast workers and a slow one, and one that comes back."""

import json
import re
import signal
import time
from pathlib import Path

import pytest

from .harness import Cluster

ROUNDS = 40
FAST = ("0.05", "0.06")
DEALT = "data of workers that are left out will be dealt to the others; --leave-out none prevents it"


def start(cluster: Cluster, folder: Path, port: int, steps: tuple[str, ...], *words: str, last: tuple[str, ...] = ()):
    for rank, step in enumerate(steps):
        flags = ["-m", "esync.worker", "-c", "1", "-n", "lenet", "-b", "4", "-ll", "0.001", "--no-evaluation"]
        flags += ["-m", "tiered", "--step-time", step, "-ip", "127.0.0.1", "-port", str(port), *words]
        flags += ["-ld", str(folder / f"logs-{rank}"), *(last if rank == len(steps) - 1 else ())]
        cluster.start_worker(rank, flags)


def rounds(folder: Path, rank: int) -> list[int]:
    paths = (folder / f"logs-{rank}" / "cpu").glob("iter-*.txt")
    return sorted(int(path.stem.removeprefix("iter-")) for path in paths)


def test_tiered_fast_workers_do_not_wait_for_a_slow_one(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3, servers=2) as cluster:
        port = cluster.start_state_server()
        start(cluster, tmp_path, port, (*FAST, "1.0"), "--rounds", str(ROUNDS), "--leave-out", "none")
        cluster.finish()
    assert rounds(tmp_path, 0) == rounds(tmp_path, 1) == list(range(1, ROUNDS + 1))
    slow = rounds(tmp_path, 2)
    assert 1 <= len(slow) < ROUNDS / 2
    facts = json.loads((tmp_path / "logs-2" / "cpu" / "run.json").read_text())
    assert (facts["tier"], facts["left_out"]) == (1, False)
    assert DEALT not in cluster.output("worker-0")


@pytest.mark.timeout(240)
def test_tiered_worker_that_was_left_out_comes_back(tmp_path: Path) -> None:
    words = ("--rounds", "150", "--leave-out", "auto", "--leave-out-probe", "0.5", "--compression", "fp16", "--overlap")
    with Cluster(tmp_path, 3, servers=2, seconds=180) as cluster:
        port = cluster.start_state_server()
        start(cluster, tmp_path, port, (*FAST, "0.05"), *words, last=("--straggle", "compute:6@0+8"))
        cluster.finish()
    assert "left out (--leave-out)" in cluster.output("worker-2")
    assert DEALT in cluster.output("worker-0")
    for rank in range(2):  # its data is dealt to the others, and given back
        shares = re.findall("([0-9]+) samples are this worker's share.*: (.*) dealt", cluster.output(f"worker-{rank}"))
        assert shares == [("30000", "those of worker 2 are"), ("20000", "none is")]
    came = rounds(tmp_path, 2)
    assert came[-1] == 150  # at last, rounds wait for it again
    assert len(came) < 150


def test_tiered_run_goes_on_when_a_slow_worker_is_killed(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3, servers=2) as cluster:
        port = cluster.start_state_server()
        flags = ("--checkpoint-dir", str(tmp_path / "kept"), "--checkpoint-every", "10")
        start(cluster, tmp_path, port, (*FAST, "3.0"), "--rounds", "150", "--tiers", "0,0,1", *flags)
        while len(rounds(tmp_path, 0)) < 20:
            assert cluster.processes["worker-0"].poll() is None, cluster.output("worker-0")
            time.sleep(0.05)
        cluster.processes["worker-2"].send_signal(signal.SIGKILL)
        assert [cluster.wait(f"worker-{rank}") for rank in range(2)] == [0, 0]
    assert rounds(tmp_path, 1)[-1] == 150
    newest = json.loads((tmp_path / "kept" / "round-150" / "worker-0.json").read_text())
    assert newest["needs"] == [0, 1]
    with Cluster(tmp_path, 3, servers=2) as cluster:  # the slow worker goes on from the part that it has, if any
        port = cluster.start_state_server()
        start(cluster, tmp_path, port, (*FAST, "0.05"), "--rounds", "155", "--tiers", "0,0,1", *flags, "--resume")
        cluster.finish()
    assert rounds(tmp_path, 0)[-1] == 155
