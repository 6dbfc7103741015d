"""Compressed exchanges on a simulated cluster, with gradients and without."""

import numpy as np
import pytest

from esync.simulate.network import Link

from .modelling import cluster, simulate
from .test_gradients import trained

ESYNC = ("--mode=esync", "--local-iterations=2", "--weighting=samples")


def test_simulated_compression_keeps_workers_identical_and_near_the_dense_exchange() -> None:
    dense = trained(cluster(0.1, 0.23, servers=2), *ESYNC, rounds=2)
    for kind in ("fp16", "2bit"):
        first, second = trained(cluster(0.1, 0.23, servers=2), *ESYNC, f"--compression={kind}", rounds=2)
        np.testing.assert_array_equal(first, second)
        assert 0 < np.abs(first - dense[0]).max() < (1e-4 if kind == "fp16" else 1)


def test_simulated_compression_with_replacement_keeps_workers_identical() -> None:
    for kind in ("fp16", "2bit"):
        modelled = cluster(0.1, 0.23, servers=2, crashes=[(1, 0.5, 0.1)])
        first, second = trained(modelled, "--mode=sync", "--momentum=0.9", f"--compression={kind}", rounds=5)
        np.testing.assert_array_equal(first, second)


def test_simulated_compression_without_gradients_counts_the_right_bytes() -> None:
    """ResNet-18, six workers: 1/2 and 1/16 both ways."""
    model, up, down = 4 * 11_175_370, {}, {}
    for kind in ("none", "fp16", "2bit"):
        simulation = simulate(cluster(*[1.0] * 6, link=Link(125e6, 1e-4)), "--mode=sync", f"--compression={kind}")
        statistics = 4 * 9_600
        up[kind] = simulation.network.received["s0"] / 6 / 5 - statistics
        down[kind] = (simulation.network.sent["s0"] / 6 - model - statistics) / 5 - statistics  # all begin with it
    for way in (up, down):
        assert way["none"] == pytest.approx(model, rel=0.01)
        assert way["fp16"] == pytest.approx(model / 2, rel=0.01)
        assert way["2bit"] == pytest.approx(model / 16, rel=0.05)
