"""What the launcher says at the end of a job."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from esync.launch import report
from esync.launch.outcome import JobOutcome
from esync.launch.replacements import Replacement
from esync.reports import report as reports
from esync.reports.comparison import compare
from esync.reports.comparison_text import comparison_text
from esync.reports.metrics_table import run_figures
from esync.reports.modes import mode_of
from esync.reports.summary_file import DeviceSummary
from esync.runtime.metric import Metric

sys.path.append(str(Path(__file__).parents[1] / "reports"))
from log_trees import write_run


@pytest.mark.parametrize(
    ("metric", "values", "target", "line"),
    [
        (Metric("perplexity", "min"), [250.0, 31.4159], 100.0, "perplexity 31.42; 100 after 0:10"),
        (Metric("perplexity", "min"), [250.0, 31.4159], None, "perplexity 31.42"),
        (Metric("perplexity", "min"), [250.0, 31.4159], 30.0, "perplexity 31.42"),
        (Metric(), [0.5, 0.8125], 0.8, "test accuracy 0.812; 0.8 after 0:10"),
    ],
)
def test_report_gives_the_final_value_and_the_time_to_the_target(metric, values, target, line):
    two = [1, 2]
    device = DeviceSummary(
        metric=metric, accuracy_list=values, accuracy_exact_list=values, num_samples_list=two, self_iters_list=two,
        elapsed_time_list=[5, 10], aggregate_time_list=[0.0, 0.0], rounds_list=two, accuracy_rounds=two,
        accuracy_time_list=[5.0, 10.0],
    )  # fmt: skip
    figures = run_figures(mode_of("esync"), {"host": {"cpu": device}}, target)
    plan = SimpleNamespace(program=None, folder_here=Path("logs"))
    assert line in report.success(figures, plan, JobOutcome())


def plan_of(folder):
    """What a report asks of the plan of a job with logs in this folder."""
    options = SimpleNamespace(target_accuracy=0.5)
    return SimpleNamespace(program=None, folder_here=folder, mode_folder=folder, options=options, trained="lenet")


@pytest.fixture
def finished(tmp_path):
    """A plan whose job has logged a run, and its figures."""
    plan = plan_of(tmp_path / "lenet/esync")
    write_run(plan.mode_folder, {"one/gpu0": 1.0}, 10)
    (plan.mode_folder / "processes").mkdir()
    return plan, report.read_figures(plan)


def test_report_and_comparison_give_one_share_of_overruns(tmp_path):
    mode = tmp_path / "lenet/esync"
    write_run(mode, {"one/gpu0": 1.0, "two/cpu": 3.0}, 60, overruns=5)
    plan = plan_of(mode)
    figures = report.read_figures(plan)
    one, two = (f"{100 * device.overrun_share:.1f} %" for device in figures.devices)
    share = f"{100 * figures.overrun_share:.1f} %"
    assert len({one, two, share}) == 3
    assert (
        f"overruns: {share} of the iterations took longer than their step time (by device: two cpu {two} of 3 s, one "
        f"gpu0 {one} of 1 s)" in report.success(figures, plan, JobOutcome())
    )
    assert f"invalid: overruns {share}" in comparison_text(compare([mode]))


def test_report_compares_with_the_fastest_device_and_with_baselines_logged_beside(tmp_path):
    devices = {"one/gpu0": 0.5, "two/gpu0": 1.0}
    half_times = {"esync": 4.0, "local": 8.0, "sync": 16.0}
    for mode, half_time in half_times.items():
        mode_devices = {"one/gpu0": 0.5} if mode == "local" else devices
        write_run(tmp_path / "lenet" / mode, mode_devices, 60, half_time=half_time)
    plans = {mode: plan_of(tmp_path / "lenet" / mode) for mode in half_times}
    figures = {mode: report.read_figures(plan) for mode, plan in plans.items()}  # writes the summaries
    lines = report.success(figures["esync"], plans["esync"], JobOutcome())
    times = {mode: figure.time_to_target for mode, figure in figures.items()}
    speed = figures["esync"].throughput / (64 / 0.5)
    assert any(line.endswith(f"{speed:.2f} times the fastest device alone, one gpu0 (limit 1.50)") for line in lines)
    for mode, label in (("local", "Standalone, the fastest device alone"), ("sync", "SSGD")):
        ratio = times[mode] / times["esync"]
        assert f"{ratio:.2f} times as fast as {label}, to test accuracy 0.5" in lines
    lines = report.success(figures["local"], plans["local"], JobOutcome())
    assert not any("fastest device alone" in line for line in lines)


def test_report_does_not_compare_with_a_baseline_of_other_devices(tmp_path):
    for mode, devices in (("esync", {"one/gpu0": 0.5, "two/gpu0": 1.0}), ("local", {"two/gpu0": 1.0})):
        write_run(tmp_path / "lenet" / mode, devices, 60, half_time=8.0)
    for mode in ("local", "esync"):
        plan = plan_of(tmp_path / "lenet" / mode)
        figures = report.read_figures(plan)
    assert not any("Standalone" in line for line in report.success(figures, plan, JobOutcome()))


def test_page_of_a_finished_job_tells_its_events(finished):
    plan, figures = finished
    outcome = JobOutcome(replacements=[Replacement("worker 0", "was killed by SIGKILL", 3.0, joined=4.0)])
    page = plan.folder_here / "report.html"
    assert report.write_page(plan, outcome, figures) == f"report: {page}"
    text = page.read_text()
    assert "worker 0 was killed by SIGKILL and was replaced" in text
    assert "time to 0.5" in text


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(28, "No space left on device", "report.html"), "report.html: No space left on device"),
        (KeyError("x"), "'x'"),
    ],
)
def test_page_that_cannot_be_written_is_said_and_fails_nothing(finished, monkeypatch, error, why):
    plan, figures = finished

    def fail(*_):
        raise error

    monkeypatch.setattr(reports, "write_report", fail)
    page = plan.folder_here / "report.html"
    assert report.write_page(plan, JobOutcome(), figures) == f"{page} could not be written: {why}"
    assert not page.exists()


def test_page_of_a_job_without_rounds_is_none_but_its_outcome_is_kept(finished):
    plan, _ = finished
    assert report.write_page(plan, JobOutcome(interrupted="SIGINT"), None) == ""
    assert not (plan.folder_here / "report.html").exists()
    assert json.loads((plan.folder_here / "processes/outcome.json").read_text())["interrupted"] == "SIGINT"
