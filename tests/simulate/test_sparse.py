"""Sparse exchanges on a simulated cluster, with real gradients."""

import pytest

from esync.runtime.errors import ExpectedError
from esync.simulate.gradients import GradientNumerics
from esync.simulate.simulation import Simulation, TimingNumerics

from .modelling import cluster, options
from .test_gradients import WORDS


def test_simulated_dgs_sends_small_messages_and_survives_a_crash():
    from esync.data import find_data_dir

    data = f"--data-dir={find_data_dir(None, 'fashion-mnist')}"
    sent = {}
    for mode in ("async", "dgs"):
        flags = ["--secondary-ratio=0.01"] if mode == "dgs" else []
        modelled = cluster(0.1, 0.23, servers=2, crashes=[(1, 0.5, 0.1)])
        chosen = options(*WORDS, data, f"--mode={mode}", *flags, rounds=12)
        simulation = Simulation(modelled, chosen, GradientNumerics(chosen, 2))
        simulation.run()
        sent[mode] = simulation.network.received["s0"] / simulation.state.nodes[0].round_state.version
        assert simulation.rounds == 12
    assert sent["dgs"] < sent["async"] / 5


def test_simulated_sparse_mode_without_gradients_is_refused():
    with pytest.raises(ExpectedError, match="--numerics real"):
        TimingNumerics(options("--mode=dgs"), 60_000)
