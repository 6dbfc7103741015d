"""Batch norm statistics of asynchronous workers on real clusters; --long adds modes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..support.variants import variants
from .harness import Cluster, outputs_of
from .statistics_worker import Plan

PROGRAM = ["-m", "esync.worker", "-c", "1", "-n", "cifar-resnet20-v1", "-b", "4", "-m", "async", "--no-evaluation"]


def train(folder: Path, servers: int, **plan: Any) -> list[dict[str, np.ndarray]]:
    """What two workers have written down, by rank."""
    files = [folder / f"statistics-{rank}.npz" for rank in range(2)]
    outputs_of(folder, [Plan(out=str(file), **plan).arguments() for file in files], servers=servers)
    return [dict(np.load(file)) for file in files]


def sent(found: dict[str, np.ndarray], mean: np.ndarray, other: dict[str, np.ndarray]) -> tuple[int, int]:
    """Return of which iteration of each worker this is the mean, where 0 is the last one.

    The test fails if it is the mean of none.

    A worker that has not been heard yet counts with what it began with: one place before its first
    iteration.
    """
    mine, theirs = (np.concatenate([each["own"][::-1], each["begin"][None]]) for each in (found, other))
    both = ((mine[:, None].astype(np.float64) + theirs[None]) / 2).astype(np.float32)
    places = np.argwhere((both == mean).all(axis=2))
    assert len(places)
    return int(places[0][0]), int(places[0][1])


@pytest.mark.parametrize(
    ("algorithm", "servers", "options"),
    variants([("dcasgd", 2, {}), ("dylu", 1, {"local_iterations": 2}), ("sync-switch", 1, {})], quick=["dcasgd"]),
)
def test_statistics_of_rank_0_are_the_mean_of_what_workers_sent_last(
    tmp_path: Path, algorithm: str, servers: int, options: dict[str, Any]
) -> None:
    first, second = train(tmp_path, servers, algorithm=algorithm, options=options)
    mine, theirs = sent(first, first["mean"], second)
    assert mine <= 2  # two local iterations an exchange in mode dylu, and the last one may not have been used
    assert theirs <= 2 + len(second["own"]) // 2  # the other one may go on when this one has ended its part
    assert second["mean"].tobytes() == second["own"][-1].tobytes()  # only rank 0 asks


@pytest.mark.parametrize(("servers", "options"), variants([(1, {}), (2, {"secondary_ratio": 0.1})], quick=[2]))
def test_statistics_with_sparse_messages_are_sent_every_tenth_time(
    tmp_path: Path, servers: int, options: dict[str, Any]
) -> None:
    first, second = train(tmp_path, servers, algorithm="dgs", rounds=25, options={"ratio": 0.1, **options})
    mine, theirs = sent(first, first["mean"], second)
    assert (len(first["own"]) - 1 - mine) % 10 == 0  # exchanges 0, 10, 20 …
    assert (len(second["own"]) - 1 - theirs) % 10 == 0
    assert mine < 11


@pytest.mark.long
def test_statistics_after_resume_begin_with_the_checkpointed_mean(tmp_path: Path) -> None:
    plan = {"algorithm": "async", "directory": str(tmp_path / "checkpoints")}
    first, _ = train(tmp_path / "before", 1, **plan)
    again = train(tmp_path / "after", 2, rounds=40, resume=True, **plan)
    for each in again:
        assert each["begin"].tobytes() == first["mean"].tobytes()
    sent(again[0], again[0]["mean"], again[1])


def test_statistics_exported_are_those_evaluated(tmp_path: Path) -> None:
    from esync.runtime.mxnet_import import mx

    with Cluster(tmp_path, 2) as cluster:
        for rank in range(2):
            logs = ["-ld", str(tmp_path / f"logs-{rank}"), "--checkpoint-dir", str(tmp_path / "checkpoints")]
            cluster.start_worker(rank, [*PROGRAM, "--rounds", "3", "-s", "1", *logs])
        cluster.finish()
    exported = mx.nd.load(str(tmp_path / "checkpoints" / "model" / "model.params"))
    kept = mx.nd.load(str(tmp_path / "checkpoints" / "round-3" / "model.params"))
    running = [name for name in exported if "running" in name]
    assert running
    for name in running:
        assert exported[name].asnumpy().tobytes() in {each.asnumpy().tobytes() for each in kept.values()}
