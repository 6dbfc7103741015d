"""A sparse exchange on a real cluster: lenet, real images, real processes."""

import json
import signal
import time
from pathlib import Path

from .harness import Cluster
from .test_worker_program import rounds

WORKER = ["-m", "esync.worker", "-c", "1", "-n", "lenet", "-b", "16", "-l", "0.0005", "-m", "dgs"]


def test_dgs_sends_little_learns_and_survives_a_killed_worker(tmp_path: Path) -> None:
    arguments = [*WORKER, "--secondary-ratio", "0.05", "--sparse-ratio", "0.05", "-e", "40", "--rounds", "160"]
    with Cluster(tmp_path, 2, servers=2, replaced=True) as cluster:
        for rank in range(2):
            logs = ["-ld", str(tmp_path / f"logs-{rank}"), "--step-time", "0.1"]
            cluster.start_worker(rank, [*arguments, *logs])
        folder = tmp_path / "logs-1" / "cpu"
        while not (folder / "iter-30.txt").exists():
            time.sleep(0.05)
            assert cluster.processes["worker-1"].poll() is None, cluster.output("worker-1")
        dead = cluster.processes.pop("worker-1")
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        cluster.start("worker-2", [*arguments, "-ld", str(tmp_path / "logs-2"), "--step-time", "0.1"])
        cluster.finish()
        assert "takes the place of a worker that is gone" in cluster.output("worker-2")
        assert "MB are kept" in cluster.output("server-0") + cluster.output("server-1")
    first, replacement = (rounds(tmp_path / f"logs-{rank}" / "cpu") for rank in (0, 2))
    assert len(replacement) > 10
    model = 4 * 61_706
    sent = [entry["bytes_sent"] for entry in first[10:]]
    received = [entry["bytes_received"] for entry in first[10:]]
    assert 0 < sorted(sent)[len(sent) // 2] < model / 6
    assert 0 < sorted(received)[len(received) // 2] < model / 6
    assert max(entry["accuracy"] for entry in first if "accuracy" in entry) > 0.4
    facts = json.loads((tmp_path / "logs-0" / "cpu" / "run.json").read_text())
    assert (facts["sparse_ratio"], facts["secondary_ratio"], facts["sparse_dense_below"]) == (0.05, 0.05, 1024)
