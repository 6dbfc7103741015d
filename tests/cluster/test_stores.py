"""MXNet's store does what the others do (tests/exchange/test_stores.py), on real clusters."""

from pathlib import Path

import numpy as np
import pytest

from tests.exchange.store_checks import SERVERS, WORKERS, comparable
from tests.exchange.test_stores import in_memory, trained

from .harness import Cluster


def run(folder: Path, kind: str) -> None:
    with Cluster(folder, WORKERS, SERVERS) as cluster:
        for rank in range(WORKERS):
            cluster.start_worker(rank, ["-m", "tests.cluster.store_worker", kind, str(folder / f"{rank}.npz")])
        cluster.finish()


def test_mxnets_store_does_what_the_protocol_asks_for(tmp_path: Path) -> None:
    run(tmp_path, "checks")


@pytest.mark.parametrize("kind", ["sgd", "overlap", "fp16", "topk", "dgs", "dcasgd"])
def test_a_training_comes_to_the_bits_that_it_comes_to_in_memory(tmp_path: Path, kind: str) -> None:
    run(tmp_path, kind)
    expected = trained(kind, in_memory(0))
    ranks, names = comparable(kind)
    for rank, each in zip(ranks, expected, strict=True):
        with np.load(tmp_path / f"{rank}.npz") as held:
            assert {name: held[name].tobytes() for name in names} == each
