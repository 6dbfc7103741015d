"""The published filter of accuracy curves, and the published results beside ours."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from log_trees import plot_logs
from test_plot import device, figures_of, make

from esync.reports import figures
from esync.reports.metrics_table import RunFigures, run_figures
from esync.reports.modes import mode_of
from esync.reports.plot import main, parse_arguments
from esync.reports.published_results import PublishedRun, published_runs
from esync.reports.published_smoothing import smoothed
from esync.reports.summary_file import DeviceSummary
from esync.reports.tables import smoothed_text
from esync.runtime.metric import Metric

ROOT = Path(__file__).parents[2]


def run_of(accuracies: dict[int, float], rounds: int, folder: str = "esync") -> RunFigures:
    """Return a run of that many rounds of 8 s, of which some have been evaluated."""
    values = list(accuracies.values())
    summary = DeviceSummary(
        accuracy_list=[round(value, 3) for value in values],
        accuracy_exact_list=values,
        accuracy_rounds=list(accuracies),
        accuracy_time_list=[8.0 * number for number in accuracies],
        rounds_list=list(range(1, rounds + 1)),
        num_samples_list=[64] * rounds,
        self_iters_list=[2] * rounds,
        elapsed_time_list=[8 * number for number in range(1, rounds + 1)],
        aggregate_time_list=[0.0] * rounds,
        total_time=8.0 * rounds,
    )
    return run_figures(mode_of(folder), {"h": {"gpu0": summary}}, 0.8)


def published_drawer(accuracies: list[float], seconds: list[float], every: int, points: int) -> tuple[list, list]:
    """Return what the published program draws for a run that was evaluated in every round.

    It slices both lists, puts the point (0, 0.1) before them, and takes means over a padded list.
    """
    values, times = [0.1, *accuracies[::every]], [0.0, *seconds[::every]]
    padded = [values[0]] * (points - 1) + values
    return times, [sum(padded[place : place + points]) / points for place in range(len(values))]


@pytest.mark.parametrize(("folder", "every", "points"), [("sync", 5, 10), ("sync-niid", 10, 30)])
def test_smoothing_of_a_run_evaluated_in_every_round_equals_the_published_program(
    folder: str, every: int, points: int
) -> None:
    accuracies = [(37 * number % 101) / 101 for number in range(1, 778)]
    run = smoothed(run_of(dict(enumerate(accuracies, start=1)), len(accuracies), folder))
    times, expected = published_drawer(accuracies, [8.0 * number for number in range(1, 778)], every, points)
    assert list(run.times) == times
    assert list(run.accuracies) == pytest.approx(expected)


def test_smoothing_of_a_run_evaluated_in_some_rounds_goes_by_the_round_numbers() -> None:
    run = smoothed(run_of({10: 0.5, 20: 0.8, 25: 0.6}, 26))
    # Rounds 1 and 6 come before the first evaluation; 11 and 16 have that of round 10, 21 that of
    # round 20, 26 that of round 25.
    assert run.times == (0.0, 88.0, 128.0, 168.0, 208.0)
    assert run.accuracies == pytest.approx([0.1, 0.14, 0.18, 0.25, 0.3])


def test_smoothed_table_marks_and_names_runs_that_are_too_short_for_the_window() -> None:
    full, short = dict.fromkeys(range(1, 47), 0.9), dict.fromkeys(range(1, 6), 0.9)
    late = run_of({20: 0.9, 52: 0.9}, 52, "async")
    by_class = run_of(dict.fromkeys(range(1, 101), 0.9), 100, "sync-niid")
    runs = [smoothed(run) for run in (run_of(full, 46, "sync"), run_of(short, 5), late, by_class)]
    text = smoothed_text(runs)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    assert [(row[0], row[-1]) for row in rows[1:]] == [
        ("SSGD", ""),  # rounds 1, 6, …, 46 fill the window
        ("ESync", "too short for the filter"),
        ("ASGD", "too short for the filter"),
        ("SSGD non-i.i.d.", "too short for the filter"),
    ]
    lines = [line for line in text.splitlines() if "too few" in line]
    assert [line.partition(" are too few")[0] for line in lines] == [
        "ESync: 5 rounds",
        "ASGD: 52 rounds, evaluated from round 20 on,",
        "SSGD non-i.i.d.: 100 rounds",
    ]
    assert ["window of 50 rounds" in line for line in lines] == [True, True, False]
    assert "window of 300 rounds" in lines[2]
    assert "too few" not in smoothed_text(runs[:1])


def test_command_of_the_page_draws_smoothed_curves_outside_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "results/reproduction/README.md").read_text("utf-8").replace("\\\n", " ")
    program, *words = shlex.split(re.findall(r"esync plot [^\n`]*--published-smoothing[^\n`]*", page)[0])
    monkeypatch.chdir(ROOT)
    assert (program, words[0]) == ("esync", "plot")
    out = parse_arguments(words[1:]).out
    assert out is not None
    assert not out.resolve().is_relative_to(ROOT)
    assert main([*words[1:], "--out", str(tmp_path / "drawn")]) == 0
    assert (tmp_path / "drawn/accuracy-iid-smoothed.png").exists()


def test_smoothing_leaves_out_rounds_missing_in_the_log() -> None:
    run = run_of(dict.fromkeys(range(1, 12), 0.9), 11)
    run = smoothed(replace(run, round_ends=tuple(end for end in run.round_ends if end[0] != 6)))
    assert run.times == (0.0, 8.0, 88.0)
    assert run.accuracies == pytest.approx([0.1, 0.18, 0.26])


def test_smoothing_spares_other_metrics_sequential_sgd_and_runs_without_evaluations() -> None:
    perplexity = device(metric=Metric("perplexity", "min"))
    without = run_of({}, 3)
    for run in (run_figures(mode_of("esync"), {"h": {"cpu": perplexity}}, 50.0), figures_of("local"), without):
        assert smoothed(run) is run


def test_plot_with_published_smoothing_draws_and_tabulates_smoothed_curves_beside_the_raw_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = {"final_accuracy": 0.95, "half_time": 4.0}
    folder = make(tmp_path, {"esync": fast, "sync": fast, "esync-niid": fast, "local": fast}, seconds=400.0)
    capsys.readouterr()
    for name, words in (("raw", []), ("both", ["--published-smoothing"])):
        assert plot_logs(tmp_path, "--out", str(tmp_path / name), *words) == 0
    raw, both = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("raw", "both"))
    smoothed_files = {f"accuracy-{kind}-smoothed.{suffix}" for kind in ("iid", "non-iid") for suffix in ("png", "pdf")}
    assert set(both) - set(raw) == smoothed_files
    changed = {name for name in raw if raw[name] != both[name]}
    assert changed == {"speedup.txt"}  # without the option, and for all but the table, nothing is smoothed
    text = both["speedup.txt"].decode()
    assert text.startswith(raw["speedup.txt"].decode())
    table = text.removeprefix(raw["speedup.txt"].decode())
    assert "Smoothed as in the published figures" in table
    esync = next(line for line in table.splitlines() if line.startswith("| ESync "))
    # Accuracies are above 0.9 soon, so the mean is above 0.8 once rounds 1, 6, …, 41 have replaced
    # nine of ten points of 0.1; rounds take 2.4 s, and summaries have whole seconds.
    assert "98.0 s" in esync
    assert "Standalone" not in table  # it is not smoothed
    assert folder.is_dir()


def test_figure_of_smoothed_curves_has_the_final_accuracy_of_sequential_sgd_only() -> None:
    run, standalone = figures_of(), figures_of("local")
    lines = figures.accuracy("lenet", [smoothed(run)], standalone, 0.8, as_published=True).axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["ESync", "Standalone, final (0.800)", "target 0.8"]


def test_published_results_are_marked_at_their_times_in_the_axis_unit() -> None:
    runs = [figures_of(), figures_of("async")]
    published = {"esync": PublishedRun(0.925, 540.0), "local": PublishedRun(0.919), "sync": PublishedRun(0.86, 3600.0)}
    axes = figures.accuracy("resnet18-v1", runs, figures_of("local"), 0.8, published=published).axes[0]
    marked = [line for line in axes.get_lines() if line.get_markerfacecolor() == "none" and len(line.get_xdata())]
    assert [line.get_xydata().tolist() for line in marked] == [[[120.0, 0.925], [9.0, 0.8]], [[120.0, 0.919]]]
    assert [line.get_color() for line in marked] == [runs[0].mode.style.color, mode_of("local").style.color]
    assert axes.get_xlabel() == "Time (minutes)"
    assert axes.get_legend_handles_labels()[1][-1] == "published"


def test_published_results_of_a_narrow_network_are_those_of_the_full_one() -> None:
    assert published_runs("resnet18-v1x0.25") == published_runs("resnet18-v1")
    assert published_runs("resnet18-v1x0.25-groupnorm") == published_runs("resnet18-v1-groupnorm") != {}
    assert published_runs("resnet18-v1")["sync-niid"].final_accuracy == 0.73
    assert set(published_runs("mobilenet-v1x0.5")) == {"esync", "local"}
    assert not published_runs("lenet")


def test_plot_marks_published_results_only_where_there_are_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as caught:
        plot_logs(tmp_path, "--published-results")
    assert caught.value.code == 2
    assert "the paper has none for lenet; it has some for resnet18-v1, mobilenet-v1" in capsys.readouterr().err
    make(tmp_path, {"esync": {}}, network="resnet18-v1")
    marked, accuracy = [], figures.accuracy
    monkeypatch.setattr(figures, "accuracy", lambda *arguments: marked.append(arguments[-1]) or accuracy(*arguments))
    for words in ([], ["--published-results"]):
        assert plot_logs(tmp_path, *words, network="resnet18-v1") == 0
    assert marked == [{}, published_runs("resnet18-v1")]


def test_throughput_and_computing_ratio_figures_have_sequential_sgd_and_traffic_only_if_logged() -> None:
    runs = [figures_of(), figures_of("local", bytes_sent_list=[], bytes_received_list=[])]
    names = [text.get_text() for text in figures.throughput("lenet", runs).axes[0].get_xticklabels()]
    assert names == ["ESync", "Standalone"]
    assert [axes.get_title() for axes in figures.computing_ratio("lenet", runs).axes] == names
    assert [text.get_text() for text in figures.traffic("lenet", runs).axes[0].get_xticklabels()] == ["ESync"]
