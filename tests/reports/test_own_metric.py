"""Logs of runs with a metric of their own: summarized, compared and drawn."""

import json
from pathlib import Path

import pytest
from log_trees import (
    esync_round,
    figures_below,
    plot_logs,
    speedups,
    summarize_logs,
    sync_round,
    write_round,
    write_run,
)

from esync.reports import figures
from esync.reports.summary_file import SummaryError, load_summary

LOSS = {"name": "loss", "goal": "min"}
VALUES = (2.5, 0.00041, 1.25)


def make(base: Path, mode: str, values: tuple[float, ...] = VALUES, **facts: object) -> Path:
    """Write a run of a mode whose rounds of ten seconds end with these losses, and summarize it."""
    make_round = esync_round if mode == "esync" else sync_round
    folder = base / "lenet" / mode / "host/cpu"
    for number, value in enumerate(values, 1):
        write_round(folder, number, make_round(number, 10.0 * number, loss=value))
    (folder / "run.json").write_text(json.dumps({"metric": LOSS} | facts))
    assert summarize_logs(base, "-m", mode) == 0
    return base / "lenet"


def test_summary_of_another_metric_names_it_and_keeps_its_values(tmp_path: Path) -> None:
    folder = make(tmp_path, "sync")
    columns = json.loads((folder / "sync/Sync.json").read_text())["host"]["cpu"]
    assert columns["metric"] == LOSS
    assert columns["accuracy_list"] == columns["accuracy_exact_list"] == list(VALUES)
    assert columns["accuracy_rounds"] == [1, 2, 3]
    assert load_summary(folder / "sync/Sync.json")["host"]["cpu"].metric.goal == "min"


def test_summary_without_metric_reads_as_accuracy(tmp_path: Path) -> None:
    folder = make(tmp_path, "sync")
    path = folder / "sync/Sync.json"
    content = json.loads(path.read_text())
    del content["host"]["cpu"]["metric"]
    path.write_text(json.dumps(content))
    with pytest.raises(SummaryError, match=r"accuracy is 2\.5, expected 0 to 1"):
        load_summary(path)


def test_summarize_with_a_metric_that_cannot_be_used_names_it(tmp_path: Path, capsys) -> None:
    make(tmp_path, "sync", metric={"name": "loss", "goal": "low"})
    assert "run.json: metric → goal: Input should be 'max' or 'min'" in capsys.readouterr().err.replace("\n", " ")


def test_plot_of_another_metric_compares_by_its_goal(tmp_path: Path, capsys) -> None:
    make(tmp_path, "sync", (2.5, 1.5, 0.9))
    folder = make(tmp_path, "esync", (1.0, 0.7, 0.8))
    assert plot_logs(tmp_path, "--target", "1") == 0
    runs = speedups(folder)["runs"]
    assert {name: run["time_to_target"] for name, run in runs.items()} == {"ESync": 10.0, "Sync": 30.0}
    assert runs["ESync"]["speedup"] == 3.0
    assert (runs["ESync"]["metric"], runs["ESync"]["final_accuracy"], runs["ESync"]["best_accuracy"]) == (
        LOSS,
        0.8,
        0.7,
    )
    output = capsys.readouterr().out
    assert "lenet, loss: 2 runs" in output
    assert "time to 1 " in output
    assert "final loss" in output
    assert (folder / "figures/loss-iid.png").exists()
    assert not (folder / "figures/accuracy-iid.png").exists()


def test_plot_of_another_metric_takes_the_target_that_the_runs_had(tmp_path: Path) -> None:
    make(tmp_path, "sync", (2.5, 1.5, 0.9), target=1.5)
    folder = make(tmp_path, "esync", (1.0, 0.7, 0.8), target=1.5)
    assert plot_logs(tmp_path) == 0
    assert speedups(folder)["target"] == 1.5
    assert speedups(folder)["runs"]["Sync"]["time_to_target"] == 20.0
    make(tmp_path, "esync", (1.0, 0.7, 0.8), target=0.8)  # no common one any more
    assert plot_logs(tmp_path) == 0
    assert speedups(folder)["runs"]["ESync"]["speedup_missing_because"] == "no target"


def test_plot_of_runs_with_several_metrics_draws_them_apart(tmp_path: Path, capsys) -> None:
    folder = make(tmp_path, "esync")
    write_run(folder / "sync", {"host/cpu": 0.5}, 60.0)
    assert summarize_logs(tmp_path, "-m", "sync") == 0
    assert plot_logs(tmp_path) == 0
    names = {path.name for path in (folder / "figures").glob("*-iid.png")}
    assert names == {"accuracy-iid.png", "loss-iid.png"}
    runs = speedups(folder)["runs"]
    assert runs["ESync"]["speedup_missing_because"] == "SSGD has another metric"
    assert (runs["Sync"]["target"], runs["ESync"]["target"]) == (0.8, None)
    capsys.readouterr()
    assert plot_logs(tmp_path, "--target", "0.8") == 2
    stderr = " ".join(capsys.readouterr().err.split())
    assert "The runs have several: loss (ESync), test accuracy (SSGD)" in stderr


def test_accuracy_figure_of_another_metric_has_its_name_and_range(tmp_path: Path) -> None:
    folder = make(tmp_path, "sync", (250.0, 120.0, 90.0))
    runs = figures_below(folder)
    axes = figures.accuracy("lenet", runs, None, None).axes[0]
    assert (axes.get_ylabel(), axes.get_title()) == ("Loss", "Loss over time, lenet, i.i.d. data")
    assert axes.get_ylim()[1] >= 250
    assert len(axes.get_lines()) == 1  # no target
