"""Mode tiered on a simulated cluster without gradients: who waits for whom, and who comes back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from esync.reports.plot import main as plot
from esync.reports.summarize import main as summarize
from esync.runtime.straggler_injection import StragglerEvent
from esync.simulate.network import Link

from .modelling import cluster, simulate, with_devices

FAST = (0.1, 0.15)


def tiered(*words, slow=(2.0,), rounds=60, modelled=None, **arguments):
    modelled = modelled or cluster(*FAST, *slow, servers=2)
    return simulate(modelled, "--mode=tiered", "--batch-size=10", *words, rounds=rounds, **arguments)


def sharing(modelled, *hosts):
    """The same workers on hosts that have several of them, which exchange as one."""
    workers = tuple(replace(worker, host=f"h{hosts[worker.rank]}") for worker in modelled.workers)
    return replace(modelled, workers=workers, per_host=True)


def agreeing(simulation):
    states = [node.round_state for node in simulation.state.nodes]
    assert len({(state.round, state.version, state.samples) for state in states}) == 1
    return states[0]


@pytest.mark.parametrize("words", [(), ("--overlap",), ("--compression=fp16",), ("--tiers=0,0,1",)])
def test_tiered_rounds_are_those_of_the_first_tier(words):
    simulation = tiered(*words)
    state, slow = agreeing(simulation), simulation.workers[2]
    assert state.round == 60
    # It ends with the others, but for an iteration.
    assert 60 * 0.15 - 0.1 < simulation.engine.now < simulation.workers[1].ended + 2.1
    assert 3 <= slow.rounds <= 60 * 0.15 / 2.0 + 2
    assert simulation.workers[1].longest_wait < 0.2
    assert state.version == 60 * 2 + slow.rounds  # every update of the slow one has been used


@pytest.mark.parametrize("words", [(), ("--overlap", "--compression=fp16"), ("--leave-out=2", "--overlap")])
def test_tiered_workers_that_share_a_host_do_not_wait_for_slow_ones_there(words):
    modelled = sharing(cluster(*FAST, 2.0, 0.1, 3.0, servers=2), 0, 0, 0, 1, 1)
    simulation = tiered(*words, modelled=modelled)
    assert agreeing(simulation).round == 60
    assert simulation.workers[1].ended < 60 * 0.15 + 5.0
    assert simulation.workers[4].rounds > 1


def test_tiered_workers_of_one_speed_exchange_as_in_esync():
    both = [
        simulate(cluster(0.1, 0.13, 0.3), f"--mode={mode}", "--weighting=samples", rounds=20)
        for mode in ("tiered", "esync")
    ]
    assert both[0].workers[0].ended == pytest.approx(both[1].workers[0].ended)
    assert [worker.iterations for worker in both[0].workers] == [worker.iterations for worker in both[1].workers]


def test_tiered_worker_that_is_left_out_sends_nothing_and_ends_with_the_others():
    simulation = tiered("--leave-out=auto", slow=(40.0,), rounds=600)
    state, out = agreeing(simulation), simulation.workers[2]
    assert state.version == 2 * 600
    assert out.rounds == 0
    assert simulation.engine.now < 600 * 0.15 + 41.0


@pytest.mark.parametrize("words", [(), ("--overlap", "--compression=fp16")])
def test_tiered_worker_that_was_left_out_comes_back_when_it_is_faster(words):
    event = StragglerEvent("compute", 30.0, 0.0, 40.0)
    modelled = with_devices(cluster(*FAST, 0.1, servers=2), [2], straggler_events=(event,))
    simulation = tiered("--leave-out=auto", "--leave-out-probe=2", *words, modelled=modelled, rounds=800)
    state, back = agreeing(simulation), simulation.workers[2]
    assert simulation.state_server.coordinator.division.aside == set()
    assert 200 < back.rounds < 790
    assert state.version == 2 * 800 + back.rounds
    assert not state.aside.any()


@pytest.mark.parametrize("words", [(), ("--leave-out=2", "--elastic"), ("--overlap", "--elastic")])
def test_tiered_worker_that_is_replaced_is_sorted_in_again(words):
    modelled = cluster(*FAST, 2.0, servers=2, crashes=[(2, 5.0, 1.0), (1, 9.0, 1.0)])
    simulation = tiered(*words, modelled=modelled, rounds=100)
    assert [node.round_state.round for node in simulation.state.nodes] == [100, 100]
    assert simulation.workers[0].ended < 100 * 0.15 + 12.0


def test_slowest_iterations_auto_bounds_the_share_of_exchanges():
    link = Link(1e9, 0.0002)
    words = "--slowest-iterations=auto", "-n=resnet18-v1"
    alone = tiered(*words, modelled=cluster(0.1, 0.1, link=link), rounds=30)
    overlapped = tiered(*words, "--overlap", modelled=cluster(0.1, 0.1, link=link), rounds=30)
    computing = [
        simulation.workers[0].iterations * 0.1 / simulation.workers[0].ended for simulation in (alone, overlapped)
    ]
    assert computing[0] == pytest.approx(0.9, abs=0.05)
    assert computing[1] > 0.97
    assert overlapped.workers[0].iterations == pytest.approx(30 * 8, rel=0.05)
    assert alone.workers[0].iterations > 1.5 * overlapped.workers[0].iterations


def test_summarize_and_plot_of_a_tiered_run_miss_no_rounds_of_slow_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The slow one joins every few rounds, and the last one is left out from the beginning."""
    folder = tmp_path / "resnet18-v1" / "tiered"
    simulation = tiered(modelled=cluster(*FAST, 2.0, 60.0), log_dir=folder)
    rounds = [worker.rounds for worker in simulation.workers]
    assert rounds[:2] == [60, 60]
    assert 1 < rounds[2] < 30
    assert rounds[3] == 0

    assert summarize(["-b", str(tmp_path), "-m", "tiered"]) == 0
    captured = capsys.readouterr()
    assert ".txt" not in captured.err
    assert "skipped" not in captured.out + captured.err
    assert "w3/cpu: this device has taken part in no round" in captured.out + captured.err
    summary = _read(folder / "Tiered-ESync.json")
    assert [len(summary[f"w{rank}"]["cpu"]["rounds_list"]) for rank in range(3)] == rounds[:3]

    assert plot(["-b", str(tmp_path), "-n", "resnet18-v1"]) == 0
    assert "missing" not in capsys.readouterr().out
    speedups = _read(tmp_path / "resnet18-v1" / "figures" / "speedup.json")
    assert speedups["runs"]["Tiered-ESync"]["missing_rounds"] == 0


def _read(path: Path) -> dict:
    return json.loads(path.read_text())
