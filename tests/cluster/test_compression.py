"""Compressed exchanges on a real cluster with LeNet and real images."""

from pathlib import Path

from .harness import Cluster
from .test_deaths import kill, until
from .test_worker_program import rounds

SERVERS = 2
MODEL = 4 * 61_706


def test_fp16_compression_halves_the_bytes_and_survives_a_killed_worker(tmp_path: Path) -> None:
    words = ["-m", "esync.worker", "-c", "1", "-n", "lenet", "-b", "16", "-m", "esync", "--local-iterations", "2"]
    words += ["--compression", "fp16", "--rounds", "14", "--step-time", "0.1", "--no-export", "--no-evaluation"]
    logs = [tmp_path / f"logs-{rank}" for rank in range(2)]
    with Cluster(tmp_path, 2, SERVERS, replaced=True) as cluster:
        for rank in range(2):
            cluster.start_worker(rank, [*words, "-ld", str(logs[rank])])
        until(cluster, lambda: len(rounds(logs[1] / "cpu")) > 2)
        kill(cluster, "worker-1")
        cluster.start("worker-1", [*words, "-ld", str(logs[1])])
        cluster.finish()
        assert "takes the place of a worker that is gone" in cluster.output("worker-1")
    first, second = (rounds(log / "cpu") for log in logs)
    assert first[-1]["num_iters"] == second[-1]["num_iters"] == 14
    for way in ("bytes_sent", "bytes_received"):
        usual = sorted(entry[way] for entry in first[1:])[len(first) // 2]
        assert (
            MODEL / 2 < usual < 0.7 * MODEL
        )  # small records and the questions for them are a part of so small a model
