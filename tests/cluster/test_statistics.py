"""Batch norm statistics of asynchronous workers on a real cluster."""

from pathlib import Path

from .harness import Cluster

PROGRAM = ["-m", "esync.worker", "-c", "1", "-n", "cifar-resnet20-v1", "-b", "4", "-m", "async", "--no-evaluation"]


def test_statistics_exported_are_those_evaluated(tmp_path: Path) -> None:
    from esync.runtime.mxnet_import import mx

    with Cluster(tmp_path, 2) as cluster:
        for rank in range(2):
            logs = ["-ld", str(tmp_path / f"logs-{rank}"), "--checkpoint-dir", str(tmp_path / "checkpoints")]
            cluster.start_worker(rank, [*PROGRAM, "--rounds", "3", "-s", "1", *logs])
        cluster.finish()
    exported = mx.nd.load(str(tmp_path / "checkpoints" / "model" / "model.params"))
    checkpoint = mx.nd.load(str(tmp_path / "checkpoints" / "round-3" / "model.params"))
    running = [name for name in exported if "running" in name]
    assert running
    for name in running:
        assert exported[name].asnumpy().tobytes() in {array.asnumpy().tobytes() for array in checkpoint.values()}
