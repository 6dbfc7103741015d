"""The cost model of collectives, and the autotuner that chooses among them on all ranks alike."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from esync.exchange.collectives.autotuner import Autotuner, measure
from esync.exchange.collectives.cost import Costs, predict, predictions
from esync.exchange.collectives.memory import MemoryNetwork

GIGABIT = Costs(latency=100e-6, per_byte=1 / 117.5e6, adding=1 / 5e9)


@pytest.mark.parametrize("name", ["ring", "butterfly", "binary-blocks"])
@pytest.mark.parametrize("ranks", [2, 8])
def test_cost_model_of_large_model_is_bound_by_the_bandwidth(name: str, ranks: int) -> None:
    size = 400_000_000
    minimum = 2 * size * (ranks - 1) / ranks * GIGABIT.per_byte
    assert minimum <= predict(name, ranks, size, GIGABIT) <= 1.15 * minimum


def test_cost_model_prefers_butterfly_for_small_models_and_either_for_large_ones() -> None:
    small, large = predictions(32, 4_000, GIGABIT), predictions(32, 400_000_000, GIGABIT)
    assert small["butterfly"] < small["ring"] / 5  # 10 steps instead of 62
    assert large["ring"] == pytest.approx(large["butterfly"], rel=0.01)
    assert predictions(13, 40_000_000, GIGABIT)["binary-blocks"] < predictions(13, 40_000_000, GIGABIT)["butterfly"]


def play(choice: Autotuner, seconds: dict[str, float], exchanges: int) -> None:
    for _ in range(exchanges):
        choice.record(seconds[choice.current])


def test_autotuner_keeps_the_fastest_and_retries_others_when_it_slows_down() -> None:
    choice = Autotuner({"ring": 0.10, "mpi": 0.11, "butterfly": 0.12, "binary-blocks": 0.9})
    assert choice.current == "ring"
    assert choice.reason.startswith("predicted: ring 100.00 ms, mpi")
    times = {"ring": 0.2, "mpi": 0.3, "butterfly": 0.15}  # the far one is never tried
    play(choice, times, 9)
    assert choice.settled
    assert choice.current == "butterfly"
    assert choice.reason == "measured: butterfly 150.00 ms, ring 200.00 ms, mpi 300.00 ms"
    play(choice, {"butterfly": 0.16}, 50)
    assert choice.current == "butterfly"
    times["butterfly"] = 0.4
    play(choice, times, 40)
    assert choice.settled
    assert choice.current == "ring"


def test_measured_costs_are_equal_on_all_ranks() -> None:
    network = MemoryNetwork(3)
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(measure, network.transports, timeout=30))
    assert results[0] == results[1] == results[2]
    assert min(results[0].latency, results[0].adding) > 0
    assert np.isfinite(results[0].per_byte)
