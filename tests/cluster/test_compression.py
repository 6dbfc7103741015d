"""Compressed exchanges on real clusters with LeNet and real images.

--long compares the weights with those of one device.
"""

from pathlib import Path

import numpy as np
import pytest

from .harness import Cluster
from .test_deaths import kill, until
from .test_equivalences import SGD, one_device, train
from .test_worker_program import rounds

SERVERS = 2
MODEL = 4 * 61_706


@pytest.mark.long
def test_fp16_compression_keeps_workers_identical_and_near_one_device(tmp_path: Path) -> None:
    weights = train(tmp_path, SERVERS, algorithm="sync", options={"compression": "fp16"}, optimizer=SGD)
    for other in weights[1:]:
        np.testing.assert_array_equal(other, weights[0])
    np.testing.assert_allclose(weights[0], one_device(SGD), rtol=0.01, atol=1e-3)


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
