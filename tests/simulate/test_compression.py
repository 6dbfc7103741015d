"""Compressed exchanges on a simulated cluster, without gradients."""

import pytest

from esync.simulate.network import Link

from .modelling import cluster, simulate


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
