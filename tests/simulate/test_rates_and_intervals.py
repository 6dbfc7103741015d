"""Scaled learning rates and automatic intervals of the averaging methods, on modelled clusters."""

from typing import Any

import numpy as np
import pytest

from esync.simulate.network import Link
from esync.simulate.result import result
from esync.simulate.simulation import Simulation, TimingNumerics

from .modelling import cluster, options, simulate
from .test_gradients import trained

#: Bytes per second of a link over which lenet takes a while.
SLOW = 2e6


def started(modelled: Any, *words: str, rounds: int = 8) -> tuple[Simulation, list[Any]]:
    """A simulation that has run, and its algorithms."""
    chosen = options(*words, rounds=rounds)
    algorithms: list[Any] = []
    kind = chosen.algorithm

    class Noted(kind):  # type: ignore[misc, valid-type]
        def __init__(self, *values: Any, **settings: Any) -> None:
            super().__init__(*values, **settings)
            algorithms.append(self)

    chosen.algorithm = Noted
    simulation = Simulation(modelled, chosen, TimingNumerics(chosen, 60_000))
    simulation.run()
    return simulation, [algorithm for algorithm in algorithms if algorithm.exchange is not None]


def test_sync_with_linear_scaling_equals_sync_with_a_rate_times_the_workers() -> None:
    scaled = trained(cluster(0.1, 0.3), "--mode=sync", "--learning-rate=0.001", "--lr-scaling=linear")
    expected = trained(cluster(0.1, 0.3), "--mode=sync", "--learning-rate=0.002")

    np.testing.assert_array_equal(scaled[0], expected[0])


@pytest.mark.parametrize("mode", ["local-sgd", "scaffold"])
def test_local_steps_are_scaled_from_the_second_round_on(mode: str) -> None:
    def weights(*words: str, rounds: int) -> Any:
        return trained(cluster(0.1, 0.1), f"--mode={mode}", "--local-iterations=2", *words, rounds=rounds)[0]

    np.testing.assert_array_equal(weights("--lr-scaling=linear", rounds=1), weights(rounds=1))
    assert not np.array_equal(weights("--lr-scaling=linear", rounds=2), weights(rounds=2))


def test_local_momentum_moves_the_weights_further() -> None:
    def weights(momentum: float) -> Any:
        words = ["--mode=fedprox", "--local-iterations=6", "--local-lr=0.0001", f"--momentum={momentum}"]
        return trained(cluster(0.1, 0.1), *words, rounds=1)[0]

    still = trained(cluster(0.1), "--mode=local", "--learning-rate=1e-30", rounds=1)[0]
    plain, moved = (np.linalg.norm(weights(momentum) - still) for momentum in (0.0, 0.9))

    assert moved > 1.5 * plain


def test_warm_up_ends_in_the_scaled_rate() -> None:
    _, (first, second) = started(
        cluster(0.1, 0.1), "--mode=local-sgd", "--lr-scaling=linear", "--warmup-samples=10240", rounds=4
    )

    # Four rounds of ten iterations of two workers, 64 samples each.
    assert first.rate_factor == second.rate_factor == 1 + (2 - 1) * 4 * 10 * 2 * 64 / 10240
    assert first.facts["learning_rate_factor"] == first.rate_factor


@pytest.mark.parametrize(
    ("words", "iterations", "maximum"),
    [
        (["--mode=sync", "--learning-rate=0.0001"], 1, 0.01),
        (["--mode=local-sgd", "--local-iterations=2"], 2, 0.01),
        # The first of the later gradients of the two workers is sent before half of the samples are in.
        (["--mode=async", "--learning-rate=0.0001"], 1, 0.7),
        (["--mode=dgs", "--learning-rate=0.0001", "--sparse-ratio=1"], 1, 0.7),
        (["--mode=dylu", "--local-iterations=1"], 1, 0.7),
    ],
)
def test_lr_decay_at_half_of_the_samples_shortens_the_later_steps(
    words: list[str], iterations: int, maximum: float
) -> None:
    def weights(*flags: str, rounds: int) -> Any:
        samples = rounds * 2 * iterations * 16  # of two workers with batches of 16
        return trained(cluster(0.1, 0.1), *words, *flags, f"--epochs={(samples - 0.5) / 60_000:.12f}", rounds=9)[0]

    once, twice = weights(rounds=2), weights(rounds=4)
    decayed = weights("--lr-decay=0.5:0.001", rounds=4)

    assert 0 < np.linalg.norm(decayed - once) < maximum * np.linalg.norm(twice - once)


def test_esync_scales_by_the_speeds_over_the_fastest_ones() -> None:
    _, algorithms = started(cluster(0.1, 0.1, 1.0), "--mode=esync", "--lr-scaling=linear")

    assert [algorithm.rate_factor for algorithm in algorithms] == pytest.approx([2.1] * 3, abs=0.05)


def test_tiered_scales_by_those_who_have_taken_part_in_the_round() -> None:
    _, algorithms = started(
        cluster(0.1, 0.1, 5.0), "--mode=tiered", "--tiers=0,0,1", "--slowest-iterations=16", "--lr-scaling=linear"
    )

    # The third one takes part in few rounds, if in any; a round may have one iteration more of a worker.
    assert [algorithm.rate_factor for algorithm in algorithms[:2]] == pytest.approx([2, 2], abs=0.2)


@pytest.mark.parametrize("words", [[], ["--overlap"], ["--collective=ring"]])
def test_automatic_interval_is_the_same_on_all_workers_and_fits_the_times(words: list[str]) -> None:
    modelled = cluster(0.02, 0.05, link=Link(SLOW, 0.001))
    simulation, algorithms = started(
        modelled, "--mode=local-sgd", "--network=lenet", "--local-iterations=auto", *words, rounds=20
    )
    out = result(simulation, "test")
    intervals = {algorithm.planned_iterations for algorithm in algorithms}

    assert len(intervals) == 1
    (iterations,) = intervals
    exchange = algorithms[0].result.transfer
    expected = exchange / 0.05 if words == ["--overlap"] else 4 * exchange / 0.05
    assert expected <= 1.15 * iterations  # it follows from the median of several exchanges
    assert iterations < 1.5 * expected + 1
    if not words:
        assert len({device["iterations"] for device in out["devices"]}) == 1


def test_automatic_interval_over_a_free_network_stays_one() -> None:
    simulation = simulate(cluster(0.1, 0.1), "--mode=local-sgd", "--local-iterations=auto", rounds=10)

    assert [worker.iterations for worker in simulation.workers] == [10, 10]


def test_automatic_interval_of_dylu_counts_the_fastest_workers_iterations() -> None:
    _, (fast, slow) = started(
        cluster(0.02, 0.2, link=Link(SLOW, 0.001)),
        "--mode=dylu",
        "--network=lenet",
        "--local-iterations=auto",
        rounds=40,
    )

    assert fast._due > 5 * slow._due >= 5


@pytest.mark.parametrize("words", [["--mode=local-sgd", "--local-iterations=16"], ["--mode=esync"]])
def test_decay_of_iterations_bounds_those_during_an_exchange_too(words: list[str]) -> None:
    modelled = cluster(0.05, 1.0, link=Link(SLOW, 0.001))
    words = [*words, "--decay-iterations=1"]
    for flags in ([], ["--overlap"]):
        devices = result(started(modelled, *words, *flags, rounds=20)[0], "")["devices"]
        assert [device["iterations"] / device["rounds"] for device in devices] == pytest.approx([1, 1], abs=0.06)
