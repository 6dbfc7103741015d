"""Speedups over the fastest device alone: which run is the baseline, and what limits them."""

from pathlib import Path
from typing import Any

import pytest
from log_trees import plot_logs, speedups
from test_plot import CLUSTER, device, figures_of, make

from esync.reports.metrics_table import RunFigures, run_figures
from esync.reports.modes import mode_of
from esync.reports.speedups import baseline, best_alone, on_same_cluster, over_fastest, slower_than_fastest, speedup
from esync.reports.summary_file import RunInfo

#: Samples per second of `CLUSTER`, whose batches have 64.
SPEEDS = {name: 64 / seconds for name, seconds in CLUSTER.items()}


def cluster(*step_times: float | None, folder: str = "esync", **changes: Any) -> RunFigures:
    """Return a run on devices of these step times; None for a real one, of 100 samples in 6 s."""
    devices = {
        f"gpu{rank}": device(run=RunInfo(batch_size=64, step_time=seconds), **changes)
        for rank, seconds in enumerate(step_times)
    }
    return run_figures(mode_of(folder), {"h": devices}, 0.8)


def alone(at: float, folder: str = "local", step_time: float = 0.5) -> RunFigures:
    return cluster(step_time, folder=folder, accuracy_time_list=[at / 2, at])


def test_limit_is_of_emulated_and_of_measured_speeds() -> None:
    run = cluster(0.5, 2.0)
    assert run.speedup_limit == pytest.approx(1.25)
    assert run.fastest is not None
    assert run.fastest.name == "h gpu0"
    assert cluster(None, None, None).speedup_limit == pytest.approx(3.0)
    assert cluster(None, 6.4).speedup_limit == pytest.approx(1 + 10 / (100 / 6))


def test_limit_without_a_speed_of_every_device_is_unknown() -> None:
    run = cluster(0.5, None, computing_time_list=[])
    assert (run.speedup_limit, run.fastest) == (None, None)
    assert figures_of(run=RunInfo(step_time=0.5)).speedup_limit is None


def test_best_of_several_runs_on_one_device_is_the_baseline() -> None:
    runs = [alone(19.8), alone(15.0, "local@x2"), alone(30.0, "local@x4"), figures_of("esync@a")]
    assert best_alone(runs) is runs[1]
    assert speedup(runs[3], runs, "local").value == pytest.approx(15.0 / 9.9)
    assert speedup(runs[0], runs, "local").value == pytest.approx(15.0 / 19.8)
    by_class = figures_of("esync-niid")  # sequential SGD has all of the data, whatever the shares of the others
    assert speedup(by_class, runs, "local").value == pytest.approx(15.0 / 9.9)
    late = cluster(0.5, folder="local", accuracy_exact_list=[0.1, 0.2])
    assert speedup(by_class, [late], "local").reason == "Standalone not reached"
    assert speedup(by_class, [], "local").reason == "no Standalone run"


@pytest.mark.parametrize(
    ("run_folder", "peers", "chosen"),
    [
        ("esync@a", ["sync@a", "sync@b", "sync"], "sync@a"),
        ("esync@a-seed1", ["sync@a-seed1", "sync@a-seed2"], "sync@a-seed1"),
        ("esync@a-seed1", ["sync@a", "sync@b"], "sync@a"),
        ("esync@a-seed1", ["sync@a-seed2", "sync@a-seed3", "sync"], None),
        ("esync@a", ["sync@b", "sync"], "sync"),
        ("esync@a", ["sync@b"], "sync@b"),
        ("esync@a", ["sync@b", "sync@c"], None),
        ("esync-niid", ["sync", "sync-niid"], "sync-niid"),
    ],
)
def test_baseline_has_the_same_name_or_none_or_is_the_only_one(
    run_folder: str, peers: list[str], chosen: str | None
) -> None:
    runs = [figures_of(folder) for folder in (run_folder, *peers)]
    base = baseline(runs[0], runs)
    assert (base and base.mode.folder) == chosen
    assert (speedup(runs[0], runs).reason == "several SSGD runs") is (chosen is None)


def test_best_alone_prefers_valid_runs_that_reach_the_target() -> None:
    never = cluster(0.5, folder="local", accuracy_exact_list=[0.1, 0.2])
    better = cluster(0.5, folder="local", accuracy_exact_list=[0.1, 0.3])
    broken = cluster(0.5, folder="local", overruns=50)
    assert best_alone([broken, never, better]) is better
    assert best_alone([broken, never, alone(30.0)]).time_to_target == 30.0
    assert best_alone([figures_of()]) is None


def test_baseline_on_a_slower_device_is_noticed() -> None:
    run = cluster(0.5, 2.0)
    faster = slower_than_fastest(alone(9.0, step_time=2.0), [run])
    assert faster is run.devices[0]
    assert slower_than_fastest(alone(9.0, step_time=0.51), [run]) is None  # measured speeds vary


def test_baselines_are_of_the_same_cluster_if_their_devices_are_as_fast() -> None:
    run = cluster(0.5, 2.0)
    assert on_same_cluster(run, alone(9.0))
    assert not on_same_cluster(run, alone(9.0, step_time=2.0))
    assert on_same_cluster(run, cluster(0.5, 2.0, folder="sync"))
    assert not on_same_cluster(run, cluster(0.5, 0.5, folder="sync"))
    assert not on_same_cluster(run, cluster(0.5, 2.0, 2.0, folder="sync"))


def test_text_names_the_fastest_device_and_the_limit() -> None:
    comparison = over_fastest(240.0, SPEEDS)
    assert str(comparison) == "1.50 times the fastest device alone, cloud3/gpu0 (limit 2.00)"
    assert over_fastest(240.0, {"one": 240.0}) is None
    assert over_fastest(None, SPEEDS) is None
    assert over_fastest(240.0, {**SPEEDS, "h/gpu9": None}) is None


def test_table_says_that_the_baseline_was_not_on_the_fastest_device(tmp_path: Path) -> None:
    folder = make(tmp_path, {"esync": {"half_time": 4.0}, "local": {"half_time": 8.0}})
    assert plot_logs(tmp_path) == 0
    text = (folder / "figures/speedup.txt").read_text()
    assert "Standalone was not on the fastest device, which is cloud3 gpu0" in text


def test_table_without_the_baseline_states_the_limit_and_how_to_get_it(tmp_path: Path) -> None:
    folder = make(tmp_path, {"esync": {}, "sync": {}})
    assert plot_logs(tmp_path) == 0
    text = (folder / "figures/speedup.txt").read_text()
    assert "limit = 2.00: sum of the devices' speeds ÷ that of the fastest one, cloud3 gpu0" in text
    assert text.count("--mode local") == 1
    runs = speedups(folder)["runs"]
    assert "Standalone" not in text.replace("--mode local", "")
    assert runs["ESync"]["speedup_limit"] == pytest.approx(2.0)
    assert runs["ESync"]["fastest_device"] == "cloud3 gpu0"
    assert [device["speed"] for device in runs["ESync"]["devices"]] == pytest.approx([32.0, 128.0, 160.0])
