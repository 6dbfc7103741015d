"""Sync-Switch on a modelled cluster, without gradients: when it switches, and what that does to waiting."""

import pytest

from esync.launch import flags
from esync.simulate.simulation import Simulation, Timing

from .modelling import cluster

DEVICES = (0.1, 0.1, 0.4)


def simulate(*words, servers=2, numerics=None, **arguments):
    options = flags.parse(["--mode=sync-switch", "--batch-size=10", *words])
    simulation = Simulation(cluster(*DEVICES, servers=servers), options, Timing(options, 1000), **arguments)
    simulation.run()
    return simulation


def books(simulation):
    ledgers = [node.ledger for node in simulation.side.nodes]
    assert len({(ledger.version, ledger.samples, ledger.step) for ledger in ledgers}) == 1, "the servers disagree"
    return ledgers[0]


def test_published_steps():
    simulation = simulate("--train-steps", "10", "40")
    ledger = books(simulation)
    assert (ledger.step, ledger.samples) == (40, 10 * 30 + 30 * 10)
    # 10 rounds take as long as the slowest; then 30 commits come at 10 + 10 + 2.5 a second.
    assert simulation.workers[0].ended == pytest.approx(10 * 0.4 + 30 / 22.5, rel=0.1)
    fast, _, slow = simulation.workers
    assert slow.rounds < fast.rounds
    assert sum(worker.rounds for worker in simulation.workers) == ledger.version == 60


@pytest.mark.parametrize(("share", "waits"), [("0", False), ("1", True)])
def test_the_ends_of_the_scale_are_asgd_and_ssgd(share, waits):
    simulation = simulate("--bsp-share", share, "--epochs", "0.3")
    assert (simulation.workers[0].longest_wait > 0.2) == waits
    assert books(simulation).samples == 300


def test_back_to_synchronous():
    simulation = simulate("--switch-order", "101", "--train-steps", "5", "35", "45")
    ledger = books(simulation)
    # The switch back comes with rank 0's commit, and others may have used theirs at once before they hear of it.
    assert 5 * 30 + 30 * 10 + 10 * 30 <= ledger.samples <= 5 * 30 + 30 * 10 + 10 * 30 + 50
    assert ledger.synchronous
    assert simulation.workers[0].longest_wait > 0.2


def test_a_share_becomes_whole_rounds():
    simulation = simulate("--bsp-share", "0.25", "--epochs", "0.6")
    ledger = books(simulation)
    assert ledger.samples == 600
    assert ledger.step == 5 + 45  # 150 of 600 samples in rounds of 30


def test_a_worker_that_crashes_is_replaced_in_either_phase():
    for at in (0.5, 2.5):
        options = flags.parse(["--mode=sync-switch", "--batch-size=10", "--train-steps", "5", "60"])
        modelled = cluster(*DEVICES, servers=2, crashes=[(1, at, 0.3)])
        simulation = Simulation(modelled, options, Timing(options, 1000))
        simulation.run()
        assert books(simulation).samples == 5 * 30 + 55 * 10
