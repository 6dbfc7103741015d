"""Sparse exchanges on a simulated cluster, with real gradients."""

import numpy as np
import pytest

from esync.runtime.errors import ExpectedError
from esync.simulate.gradients import GradientNumerics
from esync.simulate.simulation import Simulation, TimingNumerics

from .modelling import cluster, options
from .test_gradients import WORDS, trained


def test_simulated_gradient_dropping_with_everything_sent_equals_asgd():
    dense = trained(cluster(0.1, 0.23, servers=2), "--mode=async", rounds=4)
    sparse = trained(cluster(0.1, 0.23, servers=2), "--mode=gd-async", "--sparse-ratio=1", rounds=4)
    for ours, theirs in zip(sparse, dense, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_simulated_dgs_sends_small_messages_and_survives_a_crash():
    from esync.data import find_data_dir

    data = f"--data-dir={find_data_dir(None, 'fashion-mnist')}"
    sent = {}
    for mode in ("async", "dgs"):
        more = ["--secondary-ratio=0.01"] if mode == "dgs" else []
        modelled = cluster(0.1, 0.23, servers=2, crashes=[(1, 0.5, 0.1)])
        chosen = options(*WORDS, data, f"--mode={mode}", *more, rounds=12)
        simulation = Simulation(modelled, chosen, GradientNumerics(chosen, 2))
        simulation.run()
        sent[mode] = simulation.network.received["s0"] / simulation.side.nodes[0].round_state.version
        assert simulation.rounds == 12
    assert sent["dgs"] < sent["async"] / 5


def test_simulated_sparse_mode_without_gradients_is_refused():
    with pytest.raises(ExpectedError, match="--numerics real"):
        TimingNumerics(options("--mode=dgs"), 60_000)


def test_simulated_sparse_ratio_is_exact_where_no_tensor_is_sent_whole():
    modelled = cluster(0.1)
    (before,) = trained(modelled, "--mode=gd-async", "--learning-rate=1e-30", rounds=1)
    changed = {}
    for below in (0, 1024):
        (after,) = trained(modelled, "--mode=gd-async", f"--sparse-dense-below={below}", rounds=1)
        changed[below] = np.count_nonzero(np.abs(after - before) > 1e-20) / before.size
    assert 0.005 < changed[0] <= 0.011
    assert changed[1024] > 2 * changed[0]  # LeNet has small tensors
