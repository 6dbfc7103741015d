"""MXNet's key store on real clusters, with the checks of tests/exchange/test_key_stores.py.

--long adds algorithms and codecs.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.exchange.store_checks import SERVERS, WORKERS, comparable
from tests.exchange.test_key_stores import in_memory, trained

from ..support.variants import variants
from .harness import Cluster


def run(folder: Path, kind: str) -> None:
    with Cluster(folder, WORKERS, SERVERS) as cluster:
        for rank in range(WORKERS):
            cluster.start_worker(rank, ["-m", "tests.cluster.store_worker", kind, str(folder / f"{rank}.npz")])
        cluster.finish()


def test_mxnet_store_fulfils_the_protocol(tmp_path: Path) -> None:
    run(tmp_path, "checks")


@pytest.mark.parametrize("kind", variants(["sgd", "overlap", "fp16", "dgs", "dcasgd"], quick=["fp16", "dgs"]))
def test_mxnet_store_training_gives_the_same_bits_as_in_memory(tmp_path: Path, kind: str) -> None:
    run(tmp_path, kind)
    expected = trained(kind, in_memory(0))
    ranks, names = comparable(kind)
    for rank, contents in zip(ranks, expected, strict=True):
        with np.load(tmp_path / f"{rank}.npz") as held:
            assert {name: held[name].tobytes() for name in names} == contents
