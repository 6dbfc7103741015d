"""Logs of algorithms that the log tools do not know: their facts are used, but never trusted."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_trees import esync_round, figures_below, plot_logs, summarize_logs, write_round, write_run
from matplotlib.colors import same_color
from matplotlib.lines import Line2D

from esync.algorithms import ASGD, Algorithm
from esync.algorithms.registry import ALGORITHMS, is_stem, register
from esync.algorithms.styles import SPARE_STYLES
from esync.reports import figures
from esync.reports.metrics_table import RunFigures
from esync.reports.modes import mode_of
from esync.reports.style import INVALID, distinguishable, plain, style_of
from esync.reports.summary_file import (
    AlgorithmInfo,
    DeviceSummary,
    RunInfo,
    SummaryError,
    algorithm_info_of,
    load_run_info,
)
from esync.training.run_facts import algorithm_facts
from tests.support.json_files import change_json, read_json

CLUSTER = {"cloud1/gpu0": 0.5, "cloud1/cpu": 2.0}
SOLO: dict[str, Any] = {
    "name": "solo",
    "label": "Solo SGD",
    "folder": "solo",
    "summary": "Solo",
    "style": {"color": "#123456", "line": [0, [5, 2]], "marker": "*"},
    "source": "solo.py:Solo",
    "digest": "0123456789ab",
}


def write(base: Path, modes: dict[str, Any]) -> Path:
    """Write a run of each mode, whose run.json has these facts about the algorithm.

    Returns the network's folder.
    """
    for folder, algorithm in modes.items():
        write_run(base / "lenet" / folder, CLUSTER, 20.0, half_time=3.0, algorithm=algorithm)
    return base / "lenet"


def tools(base: Path) -> dict[str, Any]:
    """Summarize and plot as a user does; returns what plot --json wrote."""
    assert summarize_logs(base) == 0
    assert plot_logs(base, "--json", str(base / "plot.json")) == 0
    return read_json(base / "plot.json")


def loaded(base: Path) -> list[RunFigures]:
    """Summarize, and read the summaries as plot does."""
    assert summarize_logs(base) == 0
    return figures_below(base / "lenet", 0.8)


def columns(run: RunInfo | None) -> DeviceSummary:
    """One device's round."""
    one: dict[str, Any] = {name: [1] for name in ("num_samples_list", "self_iters_list", "elapsed_time_list")}
    return DeviceSummary(accuracy_list=[], aggregate_time_list=[1.0], run=run, **one)


def facts(*contents: Any) -> AlgorithmInfo:
    """What devices whose run.json say this about the algorithm make of it."""
    runs = [RunInfo.model_validate_json(json.dumps({"algorithm": one})) for one in contents]
    return algorithm_info_of({"h": {f"gpu{number}": columns(run) for number, run in enumerate(runs)}})


def test_tools_with_unknown_algorithm_summarize_and_draw_it_as_run_json_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, {"esync": None, "sync": None, "solo": SOLO, "solo-niid": SOLO})
    drawn = tools(tmp_path)
    assert (folder / "solo/Solo.json").is_file()
    assert (folder / "solo-niid/Solo-Non-IID.json").is_file()
    assert list(drawn["runs"]) == ["ESync", "Sync", "Solo", "Solo-Non-IID"]
    assert drawn["problems"] == []
    solo = drawn["runs"]["Solo"]
    assert (solo["name"], solo["method"], solo["iid"]) == ("solo", "Solo SGD", True)
    assert solo["speedup"] is not None
    assert drawn["runs"]["Solo-Non-IID"]["speedup_missing_because"] == "no SSGD run"
    assert "| Solo SGD non-i.i.d. |" in capsys.readouterr().out

    runs = figures_below(folder, 0.8)
    curves = {line.get_label(): line for line in figures.accuracy("lenet", runs[:3], None, 0.8).axes[0].get_lines()}
    curve = curves["Solo SGD"]
    assert (curve.get_color(), curve.get_marker()) == ("#123456", "*")
    assert same_color(curves["ESync"].get_color(), mode_of("esync").style.color)
    dashed = Line2D([], [], linestyle=(0, (5, 2)), linewidth=1.8)
    assert vars(curve)["_dash_pattern"] == vars(dashed)["_dash_pattern"]
    ticks = [tick.get_text() for tick in figures.throughput("lenet", runs).axes[0].get_xticklabels()]
    assert ticks == ["ESync", "SSGD", "Solo SGD"]  # both kinds of data in one place


def test_modes_are_ordered_by_the_registry_then_by_name(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(("zeta", "alpha", "alpha-niid", "sync-niid", "dgs", "async", "local", "esync")))
    assert [run.mode.folder for run in loaded(tmp_path)] == [
        "esync",
        "async",
        "dgs",
        "alpha",
        "zeta",
        "sync-niid",
        "alpha-niid",
        "local",
    ]


def test_unknown_folder_without_facts_is_named_after_the_folder(tmp_path: Path) -> None:
    folder = write(tmp_path, {"esync-lr0.1": None, "my runs": None, "…": None, "x" * 200: None})
    runs = {run.mode.name: run.mode.method for run in loaded(tmp_path)}
    assert runs == {"esync-lr0.1": "esync-lr0.1", "my runs": "my runs", "…": "…", "x" * 200: f"{'x' * 59}…"}
    assert (folder / "esync-lr0.1/esync-lr0.1.json").is_file()
    assert (folder / "my runs/my-runs.json").is_file()
    assert (folder / "…/summary.json").is_file()
    assert (folder / ("x" * 200) / f"{'x' * 64}.json").is_file()
    assert mode_of("my runs").style in SPARE_STYLES


def test_published_summary_names_stay_whatever_run_json_says(tmp_path: Path) -> None:
    folder = write(tmp_path, {"esync": SOLO})
    drawn = tools(tmp_path)
    assert {path.name for path in (folder / "esync").glob("*.json")} == {"ESync.json"}
    assert drawn["runs"]["ESync"]["method"] == "Solo SGD"


def test_baseline_of_speedups_is_known_by_its_name(tmp_path: Path) -> None:
    """Neither the label nor the summary name of another algorithm makes it the baseline."""
    write(tmp_path, {"esync": None, "other": SOLO | {"name": "sync", "label": "SSGD", "summary": "Sync"}})
    runs = tools(tmp_path)["runs"].values()
    assert [(run["method"], run["speedup_missing_because"]) for run in runs] == [
        ("ESync", "no SSGD run"),
        ("SSGD (other)", "no SSGD run"),
    ]

    write(tmp_path, {"sync": None, "local": None, "another": SOLO | {"label": "Standalone", "summary": "Standalone"}})
    drawn = tools(tmp_path)
    assert list(drawn["runs"]) == ["ESync", "Sync", "Standalone", "Sync (other)", "Standalone (local)"]
    assert [run["method"] for run in drawn["runs"].values()] == [
        "ESync",
        "SSGD",
        "Standalone (another)",
        "SSGD (other)",
        "Standalone",
    ]
    assert drawn["runs"]["Sync"]["speedup"] == 1.0
    assert drawn["runs"]["Sync (other)"]["speedup"] is not None


def test_of_run_json_that_differs_between_devices_the_first_is_used(tmp_path: Path) -> None:
    folder = write(tmp_path, {"solo": SOLO})
    path = folder / "solo/cloud1/gpu0/run.json"  # the second; cpu is before it
    change_json(path, algorithm=SOLO | {"label": "Duo", "summary": "Duo"})
    drawn = tools(tmp_path)
    assert drawn["runs"]["Solo"]["method"] == "Solo SGD"
    assert facts(SOLO, SOLO | {"label": "Duo"}).label == "Solo SGD"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("solo", "algorithm"),
        *(({"label": label}, "algorithm → label") for label in (3, "", " x", "x" * 61, "a\nb")),
        *(
            ({"summary": stem}, "algorithm → summary")
            for stem in ("../../x", ".hidden", "run", "x" * 300, "a\0b", ["x"])
        ),
        *(
            ({"style": {"line": line}}, "algorithm → style → line")
            for line in (3, [0, [1]], [0, [1, -1]], [0, [1] * 17])
        ),
        *(({"style": {"marker": marker}}, "algorithm → style → marker") for marker in (" ", "$\\frac$", ["o"])),
        ({"style": "red"}, "algorithm → style"),
    ],
)
def test_run_json_with_impossible_algorithm_is_skipped_and_names_the_field(
    tmp_path: Path, content: Any, place: str
) -> None:
    folder = write(tmp_path, {"solo": content})
    with pytest.raises(SummaryError, match=f"^{place}"):
        load_run_info(folder / "solo/cloud1/cpu/run.json")
    assert [run.mode.method for run in loaded(tmp_path)] == ["solo"]


def test_color_that_is_none_is_drawn_in_grey() -> None:
    info = facts({"style": {"color": "bluish", "marker": "v"}})
    assert style_of(info, SPARE_STYLES[0]) == replace(SPARE_STYLES[0], color=INVALID, marker="v")


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("abcdefghijklmnopqrst"), st.booleans(), st.sampled_from("XxY")), max_size=20))
def test_distinguishable_modes_have_different_labels_and_styles(kinds: list[tuple[str, bool, str]]) -> None:
    modes = [mode_of("esync"), mode_of("sync")]
    modes += [mode_of(name + "-niid" * niid, AlgorithmInfo(label=label)) for name, niid, label in kinds]
    apart = distinguishable(modes)
    assert [mode.folder for mode in apart] == [mode.folder for mode in modes]
    labels = {mode.name: mode.method for mode in apart}
    styles = {mode.name: mode.style for mode in apart}
    assert len({label.casefold() for label in labels.values()}) == len(labels) == len(set(styles.values()))
    assert all(mode.method == labels[mode.name] and mode.style == styles[mode.name] for mode in apart)


def test_style_that_is_taken_is_replaced_by_a_spare_one(tmp_path: Path) -> None:
    esync = mode_of("esync").style
    copy = {"color": esync.color, "line": esync.line, "marker": esync.marker}
    grey = {"color": INVALID}
    modes = {"a": {"style": copy}, "b": {"style": copy | {"marker": "x"}}, "c": {"style": grey}, "esync-niid": None}
    write(tmp_path, modes)
    styles = {run.mode.name: run.mode.style for run in loaded(tmp_path)}
    assert same_color(styles["esync"].color, esync.color)  # its own, though it comes last
    colours = [style.color for style in styles.values()] + [INVALID]
    assert not any(same_color(one, other) for i, one in enumerate(colours) for other in colours[:i])
    assert {styles[name].color.upper() for name in "abc"} <= {style.color.upper() for style in SPARE_STYLES}


@pytest.mark.filterwarnings("error")
def test_labels_are_drawn_and_printed_literally(tmp_path: Path) -> None:
    labels = {"a": r"\$x^", "b": "$\\frac{$", "c": "_hidden", "d": "a|b", "e": "[red]:star:[/x]", "f": "x" * 60}
    folder = write(tmp_path, {name: {"label": label} for name, label in labels.items()})
    drawn = tools(tmp_path)
    assert [run["method"] for run in drawn["runs"].values()] == list(labels.values())
    table = (folder / "figures/speedup.txt").read_text()
    for cell in (r"\$x^", "$\\frac{$", "_hidden", r"a\|b", "[red]:star:[/x]", "x" * 60):
        assert f"| {cell} " in table
    runs = figures_below(folder, 0.8)
    figure = figures.accuracy("lenet", runs, None, 0.8)
    figure.canvas.draw()
    shown = [text.get_text().replace("\n", "").strip() for text in figure.legends[0].get_texts()]
    assert shown == [*labels.values(), "target 0.8"]
    assert not any(text.get_parse_math() for text in figure.legends[0].get_texts())


@pytest.mark.parametrize("text", ['{"algorithm": NaN}', '{"algorithm": ' + "[" * 10**5, '{"algorithm": "\\ud800"}'])
def test_run_json_with_malformed_json_is_ignored(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path, {"solo": None})
    for path in folder.glob("solo/*/*/run.json"):
        path.write_text(text)
    assert [run.mode.method for run in loaded(tmp_path)] == ["solo"]


def test_summarize_mode_flag_accepts_every_existing_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, {"solo-niid": SOLO, "other": None})
    (tmp_path / "outside").mkdir()
    assert summarize_logs(tmp_path, "-m", "solo-niid") == 0
    assert {path.name for path in folder.glob("*/*.json")} == {"Solo-Non-IID.json"}
    for name in ("solo", "..", "../outside", "solo-niid/cloud1", "", "figures"):
        with pytest.raises(SystemExit) as caught:
            summarize_logs(tmp_path, "-m", name)
        assert caught.value.code == 2
        stderr = capsys.readouterr().err
        assert f"unknown mode {name!r}: choose one of esync, " in stderr
        assert stderr.strip().endswith("local, other, solo-niid")


def test_folders_without_rounds_are_no_modes_and_one_that_cannot_be_listed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path, {"solo": SOLO})
    write_round(folder / "notes/h/gpu0.old", 1, esync_round(1, 1.0))
    write_round(folder / ".trash/h/gpu0", 1, esync_round(1, 1.0))
    (folder / "empty").mkdir()
    (folder / "lost+found").mkdir()
    os.symlink("loop", folder / "loop")
    listdir = os.listdir

    def guarded(path: Any) -> list[str]:
        if Path(path).name == "lost+found":
            raise PermissionError(13, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", guarded)
    tools(tmp_path)
    assert plot_logs(tmp_path, "--out", str(folder / "mine")) == 0
    capsys.readouterr()
    assert list(tools(tmp_path)["runs"]) == ["Solo"]
    assert capsys.readouterr().err.splitlines() == [
        f"{folder}/lost+found left out: Permission denied",
        f"left out: {folder}/lost+found: Permission denied",
    ]


def test_plot_with_unreadable_summary_of_unknown_algorithm_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, {"solo": SOLO, "other": None})
    tools(tmp_path)
    (folder / "other/other.json").write_text("{")
    shutil.rmtree(folder / "other/cloud1")
    (folder / "solo/notes.json").write_text("{}")
    (folder / "solo/Aaa.json").write_text((folder / "solo/Solo.json").read_text())  # before it, but not its name
    capsys.readouterr()
    assert plot_logs(tmp_path, "--json", str(tmp_path / "plot.json")) == 0
    stderr = capsys.readouterr().err
    assert f"left out: {folder}/other: there is no run in it" in stderr
    assert f"; {folder}/other/other.json is not a summary" in stderr
    assert f"{folder}/solo/Aaa.json left out: {folder}/solo/Solo.json is there, too" in stderr
    assert "notes.json" not in stderr
    assert list(read_json(tmp_path / "plot.json")["runs"]) == ["Solo"]


def test_summary_keeps_todays_run_json(tmp_path: Path) -> None:
    """Plot needs the summaries only, including options and versions."""
    folder = write(tmp_path, {"solo": SOLO})
    fields = {"options": {"--staleness": 2, "--x": [1, None]}, "versions": {"python": "3.11.7"}}
    for path in folder.glob("solo/*/*/run.json"):
        change_json(path, **fields)
    loaded(tmp_path)
    run = read_json(folder / "solo/Solo.json")["cloud1"]["gpu0"]["run"]
    assert (run["options"], run["versions"], run["algorithm"]) == (fields["options"], fields["versions"], SOLO)
    again = load_run_info(folder / "solo/cloud1/gpu0/run.json")
    assert again is not None
    assert algorithm_info_of({"h": {"cpu": columns(again)}}) == AlgorithmInfo.model_validate(SOLO)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=str)
def test_algorithm_facts_of_built_in_algorithms_equal_what_the_tools_know(algorithm: type[Algorithm]) -> None:
    info = facts(algorithm_facts(algorithm))
    mode = mode_of(algorithm.name, info)
    assert (mode, mode.summary) == (mode_of(algorithm.name), info.summary)
    assert style_of(info, SPARE_STYLES[0]) == plain(algorithm.style)


def test_mode_of_a_run_is_the_same_with_and_without_its_class() -> None:
    """The launcher has loaded the class when it reads the logs; summarize has not."""

    class Kind(ASGD):
        pass

    for name, label in (("solo", None), ("run", None), ("a", "Dr. Ä & B"), ("b", "_x_"), ("c", "…")):
        register(name, label=label)(Kind)
        try:
            known_mode = mode_of(name, facts(algorithm_facts(Kind)))
        finally:
            del ALGORITHMS[name]
        unknown_mode = mode_of(name, facts(algorithm_facts(Kind)))
        assert known_mode == unknown_mode
        assert is_stem(known_mode.summary)
