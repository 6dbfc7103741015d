"""Summaries of the paper's runs that were carried out in parts and have no logs."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from log_trees import figures_below

from esync.reports.published_smoothing import smoothed

ROOT = Path(__file__).parents[2]
REPRODUCTION = ROOT / "results/reproduction"
NETWORK = "resnet18-v1x0.25"
sys.path.insert(0, str(ROOT / "benchmarks"))
reproduce = importlib.import_module("reproduce_paper")
sys.path.remove(str(ROOT / "benchmarks"))


def result(evaluated: list[int], rounds: int) -> dict[str, Any]:
    """Return the result of a run of a GPU and a CPU, in which the GPU does 115 or 116 iterations a round."""
    device = {"host": "cloud1", "rounds": rounds, "wait": {"mean": 0.5}, "transfer": 4.0}
    gpu = {**device, "rank": 0, "device": "gpu0", "step_time": 0.03, "iterations": 116 * rounds - 7}
    cpu = {**device, "rank": 1, "device": "cpu", "step_time": 3.5, "iterations": rounds}
    accuracies = [[number, 8.0 * number, 0.5] for number in evaluated]
    return {"accuracies": accuracies, "seconds": 8.0 * rounds, "devices": [gpu, cpu]}


@pytest.mark.parametrize(
    ("evaluated", "ends"),
    [([5, 10, 15, 20, 22], [5, 10, 15, 20, 22]), ([5, 10], [5, 10, 22])],
    ids=["evaluated at the end", "not evaluated at the end"],
)
def test_summary_of_a_run_without_logs_has_its_true_rounds_and_iterations(
    evaluated: list[int], ends: list[int]
) -> None:
    devices = reproduce.unlogged_summaries(result(evaluated, 22))["cloud1"]
    gpu, cpu = devices["gpu0"], devices["cpu"]
    assert (gpu.accuracy_rounds, cpu.accuracy_rounds) == (evaluated, [])
    for device in (gpu, cpu):
        assert (device.rounds_list, device.rounds, device.missing_rounds) == (ends, 22, 0)
        assert sum(device.self_iters_list) == device.iterations
        assert sum(device.num_samples_list) == 64 * device.iterations
        assert sum(device.aggregate_time_list) == pytest.approx(4.5 * 22)
        assert device.round_ends == [(number, 8.0 * number) for number in range(1, 23)]


@pytest.mark.parametrize(("data", "folder"), [("iid", "esync"), ("niid", "esync-niid")])
def test_stored_summaries_of_esync_have_the_rounds_of_its_result(data: str, folder: str) -> None:
    run = next(one for one in figures_below(REPRODUCTION / "summaries" / NETWORK) if one.mode.folder == folder)
    run_result = json.loads((REPRODUCTION / "runs.json").read_text())[f"{NETWORK}-esync-{data}"]["result"]
    assert list(run.accuracy_rounds) == [number for number, _, _ in run_result["accuracies"]]
    assert {(device.rounds, device.missing_rounds) for device in run.devices} == {(run_result["rounds"], 0)}
    assert run.throughput == pytest.approx(run_result["throughput"], rel=1e-6)


def test_stored_esync_run_smoothed_as_published_is_at_the_target_once_its_window_of_fifty_rounds_is_filled() -> None:
    run = next(one for one in figures_below(REPRODUCTION / "summaries" / NETWORK) if one.mode.folder == "esync")
    # Rounds 6, 11, …, 51 have the accuracies of rounds 5, 10, …, 50, all above 0.82; a round takes 8 s.
    assert smoothed(run).time_to_target == pytest.approx(51 * 8.05, abs=1.0)
