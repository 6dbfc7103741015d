"""A simulated cluster, against times and bytes worked out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from esync import config
from esync.exchange.protocol.wire import HEADER_ELEMENTS, message_elements
from esync.reports.report_page.timeline import timelines
from esync.reports.runs import load_run
from esync.runtime.batch_sizes import StepTime
from esync.simulate.cluster import ClusterModel
from esync.simulate.network import Link
from esync.simulate.result import result
from esync.simulate.servers import message_bytes, model_amount
from esync.simulate.simulation import Simulation

from .modelling import cluster, simulate, with_devices

SPEED = 125e6 * 0.94


def amount(simulation: Simulation) -> tuple[float, int]:
    """The bytes and messages of the model on the modelled wire, one way, of one worker."""
    return model_amount(simulation.state.nodes[0].endpoint.server.layout)


def outcome(modelled: ClusterModel, *words: str, **options: Any) -> dict[str, Any]:
    """What a simulation without gradients results in."""
    return result(simulate(modelled, *words, **options), "test")


def test_simulated_ssgd_takes_the_slowest_device_and_the_transfers():
    simulation = simulate(cluster(0.1, 0.2, 1.0, link=Link(SPEED)), "--mode=sync", "--network=resnet18-v1", rounds=10)
    out = result(simulation, "test")
    size = amount(simulation)[0]
    assert size == pytest.approx(4 * (11_175_370 + 9_600), rel=1e-4)
    # The two fast workers send while the slow one computes: only its own push is waited for, and
    # then all pull.
    assert out["seconds"] / 10 == pytest.approx(1.0 + size / SPEED + 3 * size / SPEED, rel=0.01)
    assert [device["rounds"] for device in out["devices"]] == [10] * 3
    fast, _, slow = out["devices"]
    assert slow["wait"]["max"] == 0
    # From 0.1 s on it has the port for itself, from 0.2 s on half of it.
    done = 0.2 + 2 * (size / SPEED - 0.1)
    assert fast["wait"]["mean"] == pytest.approx(1.0 + size / SPEED - done, abs=0.02)
    assert slow["bytes_received"] == pytest.approx(11 * size, rel=1e-3)  # the initial model, too
    assert out["traffic"]["s0"]["received"] == pytest.approx(30 * size, rel=1e-3)


def test_simulated_esync_without_network_cost_uses_almost_all_device_speed():
    paper = cluster(0.03, 0.03, 3.5, 0.03, 0.03, 3.5)
    out = outcome(paper, "--mode=esync", "--epsilon=0.001", rounds=20)
    assert out["efficiency"] >= 0.97
    assert [round(device["iterations"] / 20) for device in out["devices"]] == [116, 116, 1, 116, 116, 1]


def test_simulated_leases_save_queries():
    with_leases = simulate(cluster(0.03, 3.5), "--mode=esync", rounds=10)
    without = simulate(cluster(0.03, 3.5), "--mode=esync", rounds=10, leases=False)
    assert with_leases.state_server.questions < without.state_server.questions / 2
    assert with_leases.workers[0].iterations == pytest.approx(without.workers[0].iterations, rel=0.05)


def test_simulation_needs_few_events_per_worker_and_round():
    times = [0.03 + 3.47 * rank / 199 for rank in range(200)]
    simulation = simulate(
        cluster(*times, link=Link(100 * SPEED, 0.001), answer_time=1e-6), "--network=lenet", rounds=10
    )
    assert simulation.engine.events < 12 * 200 * 10


def test_simulation_counts_queries_and_small_messages_as_bytes():
    simulation = simulate(cluster(0.1, 1.0, link=Link(SPEED)), "--mode=esync", "--network=lenet", rounds=10)
    out = result(simulation, "test")
    fast, slow = out["devices"]
    message = message_bytes(2)
    assert message == 4 * message_elements(2) + config.SIMULATE_MESSAGE_BYTES
    assert fast["polls"] > slow["polls"] >= 10  # each sees its commit used, and the slow one is the last
    assert fast["bytes_received"] > 11 * amount(simulation)[0] + fast["polls"] * message
    calls = config.SIMULATE_CALL_BYTES
    assert fast["bytes_of_questions"] % sum(calls) == 0
    assert fast["bytes_of_questions"] > slow["bytes_of_questions"] > 10 * sum(calls)
    assert sum(device["bytes_sent"] for device in out["devices"]) == out["traffic"]["s0"]["received"]


def test_simulated_queries_take_their_round_trip():
    far = cluster(0.03, 3.5, link=Link(latency=0.01))
    near = simulate(cluster(0.03, 3.5), "--mode=esync", rounds=10, leases=False)
    asking = simulate(far, "--mode=esync", rounds=10, leases=False)
    share = asking.workers[0].iterations / near.workers[0].iterations
    assert share == pytest.approx(0.03 / 0.07, rel=0.05)  # 40 ms there and back after every iteration of 30 ms


def test_simulated_asynchronous_workers_do_not_wait():
    out = outcome(cluster(0.1, 0.4, 1.0), "--mode=async", rounds=30)
    assert [device["wait"]["max"] for device in out["devices"]] == [0.0] * 3
    assert out["efficiency"] == pytest.approx(1.0, abs=0.03)
    assert out["rounds"] == 30
    assert out["samples"] == 90 * 64


def test_asynchronous_run_counts_rounds_of_the_run_and_exchanges_of_a_worker(tmp_path):
    seen = []
    words = ("--mode=async", "--network=lenet", "--batch-size=4")
    simulate(
        cluster(0.1, 0.4),
        *words,
        rounds=10,
        log_dir=tmp_path,
        watch=lambda _, trainer: seen.append((trainer.rank, trainer.exchanges, trainer.round)),
    )
    assert seen[-1][2] == 10 == len(seen) // 2
    fast, slow = (max(exchanges for rank, exchanges, _ in seen if rank == worker) for worker in (0, 1))
    assert fast > 3 * slow
    run = load_run(tmp_path)
    assert [(device.rounds, device.unit) for device in run.figures.devices] == [(fast, "exchange"), (slow, "exchange")]
    assert run.figures.rounds == run.facts["rounds"] == 10
    assert run.facts["exchanges"] == fast
    assert [timeline.unit for timeline in timelines("", run.summary)] == ["exchange"]


def test_simulated_statistics_travel_with_asynchronous_commits():
    traffic = {}
    for kind in ("mean", "rank0"):
        simulation = simulate(cluster(0.1, 0.1), "--mode=async", f"--statistics={kind}")
        devices = result(simulation, "")["devices"]
        traffic[kind] = [(device["bytes_sent"], device["bytes_received"]) for device in devices]
        commits = [sums.iterations for sums in simulation.workers]
    size = 4 * (HEADER_ELEMENTS + 9_600) + config.SIMULATE_MESSAGE_BYTES
    sent, received = np.transpose(np.subtract(traffic["mean"], traffic["rank0"]))
    assert sent.tolist() == [commits[0] * (size + config.SIMULATE_MESSAGE_BYTES), commits[1] * size]  # a request, too
    assert received.tolist() == [commits[0] * size, 0]


def test_simulated_asynchronous_workers_are_limited_by_the_servers_port():
    simulation = simulate(cluster(*[0.03] * 6, link=Link(SPEED)), "--mode=async", "--network=resnet18-v1", rounds=20)
    out = result(simulation, "test")
    limit = 64 * SPEED / amount(simulation)[0]
    # They push together and pull together, so each direction is idle half of the time.
    assert 0.45 * limit < out["throughput"] < 1.05 * limit


def test_simulated_two_servers_halve_the_transfers():
    one, two = (
        simulate(cluster(0.01, 0.01, 0.01, link=Link(SPEED), servers=count), "--mode=sync", rounds=5)
        for count in (1, 2)
    )
    ratio = result(one, "")["seconds"] / result(two, "")["seconds"]
    assert 1.2 < ratio <= 2  # the workers' own ports limit it


def test_simulated_server_message_time_adds_up():
    cheap, dear = (simulate(cluster(0.1, 0.1, message_time=cost), "--mode=sync", rounds=10) for cost in (0.0, 0.01))
    messages = 2 * (amount(dear)[1] * 2 + 1)
    difference = result(dear, "")["seconds"] - result(cheap, "")["seconds"]
    assert difference == pytest.approx(
        10 * (0.01 * messages - 0.1), rel=0.1
    )  # one computes while the other is handed its model


@pytest.mark.parametrize("mode", ["sync", "async", "esync"])
def test_simulated_crashed_worker_is_replaced_and_the_run_continues(mode):
    crashed = cluster(0.1, 0.2, 0.3, crashes=[(1, 1.05, 2.0), (1, 4.0, 1.0)])
    simulation = simulate(crashed, f"--mode={mode}", rounds=20)
    out = result(simulation, "test")
    assert [device["crashes"] for device in out["devices"]] == [0, 2, 0]
    assert out["rounds"] == 20
    if mode == "sync":
        assert out["seconds"] == pytest.approx(20 * 0.3 + 3.0, abs=0.7)  # the others wait for the replacement
        assert out["devices"][0]["wait"]["max"] > 1.9


@pytest.mark.parametrize("at", [1.05, 9.0])
def test_simulated_crash_takes_back_what_a_worker_has_computed_ahead(at):
    crashed = cluster(0.1, 1.0, crashes=[(1, at, 0.5)])
    simulation = simulate(crashed, "--mode=local-sgd", "--local-iterations=10", rounds=1)
    slow = result(simulation, "test")["devices"][1]
    assert slow["computing"] == pytest.approx(at + 10)
    assert slow["computing_ratio"] == pytest.approx((at + 10) / (at + 10.5), rel=0.01)


def test_simulated_crash_before_the_start_or_after_the_end_is_harmless():
    simulation = simulate(cluster(0.1, 0.1, crashes=[(0, 0.0, 1.0), (1, 1000.0, 1.0)]), "--mode=sync", rounds=3)
    assert [len(sums.worlds) for sums in simulation.workers] == [2, 1]
    assert simulation.rounds == 3


def test_simulated_limits_of_time_and_samples_end_the_run():
    timed = simulate(cluster(0.1, 0.1), "--mode=sync", "--max-time=2", rounds=1000)
    assert timed.rounds == pytest.approx(20, abs=1)
    counted = simulate(cluster(0.1, 0.1), "--mode=sync", "--epochs=0.05", rounds=1000)
    assert counted.samples == pytest.approx(3000, abs=128)


def test_simulated_batches_by_speed_follow_a_device_that_becomes_slower():
    modelled = with_devices(cluster(0.1, 0.1), [1], speed=[(2.0, 1 / 3)])
    words = ["--mode=sync", "--network=lenet", "--batch-size=64"]
    equal = simulate(modelled, *words, rounds=100)
    divided = simulate(replace(modelled, step_times=(StepTime(0.1), StepTime(0.1))), *words, rounds=100)

    assert divided.samples == equal.samples == 100 * 128
    assert equal.engine.now == pytest.approx(20 * 0.1 + 80 * 0.3, rel=0.05)
    assert divided.engine.now == pytest.approx(20 * 0.1 + 5 * 0.3 + 75 * 0.15, rel=0.05)  # 96 and 32 samples


def test_simulation_with_the_same_seed_repeats_and_with_another_differs():
    def out(seed):
        jittery = cluster(0.1, 0.5, 1.0, jitter=0.2)
        return outcome(jittery, f"--seed={seed}", "--mode=esync", rounds=10)

    assert out(1) == out(1)
    assert out(1)["seconds"] != out(2)["seconds"]


def test_simulated_overlap_hides_exchanges_longer_than_an_iteration():
    def run(*words):
        modelled = cluster(0.03, 0.1, 2.0, link=Link(SPEED, 1e-4), answer_time=1e-4)
        return outcome(modelled, "--mode=esync", "--network=resnet18-v1", *words, rounds=20)

    plain, overlapped = run(), run("--overlap")
    assert plain["efficiency"] < 0.65
    assert overlapped["efficiency"] > 0.95
    assert all(device["computing_ratio"] > 0.99 for device in overlapped["devices"])
    # An exchange of 3 s may be no longer than 20 iterations here: then all wait.
    bounded = run("--overlap", "--run-ahead=20")
    assert plain["efficiency"] < bounded["efficiency"] < 0.9


def test_simulated_local_sgd_with_overlap_is_as_fast_as_its_slowest_device():
    modelled = cluster(0.1, 0.5, link=Link(SPEED, 1e-4))
    words = ("--mode=local-sgd", "--local-iterations=4", "--network=resnet18-v1")
    plain, overlapped = (outcome(modelled, *words, *flags, rounds=20) for flags in ([], ["--overlap"]))
    assert overlapped["seconds"] == pytest.approx(20 * 4 * 0.5, rel=0.06)
    assert plain["seconds"] > 20 * (4 * 0.5 + 1)


def test_simulated_ssp_worker_gets_no_further_ahead_than_the_staleness():
    def most_ahead(*words):
        counts, ahead = {}, []

        def watch(simulation, trainer):
            counts[trainer.rank] = trainer.exchanges
            ahead.append(max(counts.values()) - min(counts.get(rank, 0) for rank in range(3)))

        simulate(cluster(0.1, 0.3, 1.0), "--network=lenet", *words, rounds=10, watch=watch)
        return max(ahead)

    assert most_ahead("--mode=ssp", "--staleness=2") in (2, 3)  # one more while one after the other notices
    assert most_ahead("--mode=ssp", "--staleness=0") == 1
    assert most_ahead("--mode=async") > 10


def test_simulated_dylu_gives_iterations_in_proportion_to_speed():
    iterations = {}

    def watch(simulation, trainer):
        iterations.setdefault(trainer.rank, []).append(trainer.local_iterations)

    words = ("--mode=dylu", "--network=lenet", "--local-iterations=10")
    simulation = simulate(cluster(0.1, 0.2, 0.45, 3.0), *words, rounds=20, watch=watch)
    assert [counts[0] for counts in iterations.values()] == [1] * 4
    for rank, count in enumerate([10, 5, 2, 1]):
        assert set(iterations[rank][1:]) == {count}
    assert result(simulation, "test")["efficiency"] > 0.95
