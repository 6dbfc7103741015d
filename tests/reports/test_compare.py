"""The comparison of runs: groups over seeds, differences, invalid runs, files."""

import csv
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_trees import write_run

import esync
from esync.reports import plot, report, summarize
from esync.reports.compare import main
from esync.reports.comparison import EVALUATION_COLUMNS, MissingPandasError, compare
from esync.reports.report_page.verdict import verdict
from esync.reports.run_groups import TIME
from esync.reports.runs import RunError
from esync.reports.speedups import best_alone
from tests.support.json_files import change_json, read_json

DEVICES = {"h/gpu0": 0.5, "h/cpu": 2.0}


def two_groups(logged: Callable[..., Path], seeds: int = 2, half_time: float = 60.0) -> None:
    """Write runs of these seeds without and with overlap."""
    for seed in range(seeds):
        logged(f"esync@base-seed{seed}", seed)
        logged(f"esync@over-seed{seed}", seed, overlap=True, half_time=half_time)


@pytest.fixture
def logged(tmp_path: Path) -> Callable[..., Path]:
    """Write a run with options."""

    def write(name: str, seed: int, network: str = "lenet", accuracy: float = 0.9, **settings: Any) -> Path:
        folder = tmp_path / network / name
        overruns, facts = settings.pop("overruns", 0), settings.pop("facts", {})
        half_time = settings.pop("half_time", 60.0) + seed
        write_run(folder, DEVICES, 600, final_accuracy=accuracy + 0.001 * seed, half_time=half_time, overruns=overruns)
        for path in folder.rglob("run.json"):
            options = {"seed": seed, "log_dir": str(folder), "overlap": False, **settings}
            change_json(path, **{"seed": seed, "network": network, "options": options, "version": "1", **facts})
        return folder

    return write


def test_runs_that_differ_in_their_seed_only_are_a_group(logged, tmp_path: Path) -> None:
    two_groups(logged, 3, half_time=30.0)
    (section,) = compare(tmp_path).sections
    assert [(group.label, len(group.runs)) for group in section.groups] == [("ESync, base", 3), ("ESync, over", 3)]
    assert section.differing == {"overlap": (False, True)}
    time, final, speed, *_ = section.quantities
    assert (time.heading, final.heading) == ("time to 0.8", "final accuracy")
    interval = section.groups[0].estimate(time)
    assert interval.n == 3
    assert interval.low < interval.mean < interval.high
    faster = section.difference(section.groups[1], time)
    assert faster.high < 0
    assert faster.beyond_chance
    assert section.difference(section.groups[1], speed).beyond_chance is False


def test_groups_without_names_are_told_apart_by_their_options(logged, tmp_path: Path) -> None:
    folders = [logged("esync", 0, network=network, facts={"network": "lenet"}, **options) for network, options in
               (("a", {}), ("b", {"overlap": True}), ("c", {"overlap": True, "rounds": 5}))]  # fmt: skip
    (section,) = compare(folders).sections
    assert [group.label for group in section.groups] == [
        "ESync (overlap off)", "ESync (overlap on)", "ESync (overlap on, rounds 5)",
    ]  # fmt: skip


def test_labels_keep_runs_of_equal_options_apart(logged, tmp_path: Path) -> None:
    for name in ("before-seed0", "before-seed1", "after-seed0"):
        logged(f"esync@{name}", int(name[-1]))
    (together,) = compare(tmp_path).sections
    assert [group.label for group in together.groups] == ["ESync"]
    assert "runs of different names are one group" in str(compare(tmp_path).problems)
    logged("esync", 2)
    pair = compare([tmp_path / "lenet/esync", tmp_path / "lenet/esync@before-seed0"])
    assert "runs of different names are one group, because their options are the same: before, no name" in str(
        pair.problems
    )
    base = tmp_path / "lenet"
    (apart,) = compare([f"old={base}/esync@before*", f"new={base}/esync@after*"]).sections
    assert [(group.label, len(group.runs)) for group in apart.groups] == [("old", 2), ("new", 1)]
    with pytest.raises(RunError, match="it is in two groups, old and new"):
        compare([f"old={base}/esync@before*", f"new={base}/*"])


def test_log_tools_call_the_folder_of_all_logs_as_launch_does(logged, tmp_path: Path, capsys) -> None:
    two_groups(logged, 1)

    def output(tool: Callable[[list[str]], int], *words: str) -> str:
        assert tool([*words]) == 0
        return capsys.readouterr().out

    logs = str(tmp_path)
    assert output(main, "--log-dir", logs) == output(main, logs)
    assert output(main, "-ld", logs, "lenet/*base*", "mine=lenet/esync@over-seed0") == output(
        main, f"{logs}/lenet/*base*", f"mine={logs}/lenet/esync@over-seed0"
    )
    page = str(tmp_path / "page.html")
    assert output(report.main, "--log-dir", logs, "-o", page) == output(report.main, logs, "-o", page)
    for tool in (summarize.main, plot.main):
        assert output(tool, "--log-dir", logs, "-n", "lenet") == output(tool, "-b", logs, "-n", "lenet")
    with pytest.raises(SystemExit):
        main([])
    assert "Give RUN, or --log-dir DIR" in capsys.readouterr().err


def test_baselines_among_the_groups_give_speedups_with_their_limit(logged, tmp_path: Path, capsys) -> None:
    for seed in range(2):
        logged(f"esync@a-seed{seed}", seed, half_time=30.0)
        logged(f"sync@a-seed{seed}", seed)
        for rate, half_time in ((1.0, 55.0), (2.0, 45.0)):
            folder = logged(f"local@x{rate:g}-seed{seed}", seed, half_time=half_time, learning_rate=rate)
            shutil.rmtree(folder / "h/cpu")
    (section,) = compare(tmp_path).sections
    esync_group, sync_group = (next(g for g in section.groups if g.mode.name == name) for name in ("esync", "sync"))
    best = best_alone([group.figures for group in section.groups])
    assert best is not None
    alone = next(group for group in section.groups if group.figures is best)
    assert best.mode.label == "Standalone, x2"
    means = [group.estimate(TIME).mean for group in (alone, esync_group, sync_group)]
    over_one, over_sync = (section.speedup(esync_group, name) for name in ("local", "sync"))
    assert over_one.value == pytest.approx(means[0] / means[1])
    assert over_sync.value == pytest.approx(means[2] / means[1])
    assert over_one.limit == pytest.approx((64 / 0.5 + 64 / 2.0) / (64 / 0.5))
    assert main([str(tmp_path), "--json", str(tmp_path / "all.json")]) == 0
    output = capsys.readouterr().out
    row = next(line for line in output.splitlines() if line.startswith("| ESync, a") and "×" in line)
    assert [cell.strip() for cell in row.split("|")[2:-1]] == [
        f"{over_one.value:.2f}×", f"{over_sync.value:.2f}×", "1.25×",
    ]  # fmt: skip
    (section_content,) = read_json(tmp_path / "all.json")["sections"]
    group = next(entry for entry in section_content["groups"] if entry["label"] == "ESync, a")
    assert group["speedups"]["local"]["value"] == pytest.approx(over_one.value)
    assert group["speedup_limit"] == pytest.approx(1.25)
    assert "times as fast (limit 1.25)" in " ".join(verdict(section))


def test_group_that_does_not_always_reach_the_target_has_no_speedup(logged, tmp_path: Path) -> None:
    for seed, accuracy in enumerate((0.9, 0.7)):
        logged(f"esync@a-seed{seed}", seed, accuracy=accuracy)
        logged(f"sync@a-seed{seed}", seed)
    (section,) = compare(tmp_path).sections
    speedup = section.speedup(section.groups[0], "sync")
    assert (speedup.value, speedup.reason) == (None, "not always reached")
    assert section.speedup(section.groups[0], "local").reason == "no Standalone run"


def test_invalid_runs_are_named_and_not_in_the_means(logged, tmp_path: Path, capsys) -> None:
    for seed, overruns in ((0, 0), (1, 0), (2, 300)):
        logged(f"esync@base-seed{seed}", seed, overruns=overruns)
    logged("sync", 0, overruns=300)
    comparison = compare(tmp_path)
    base, sync = comparison.sections[0].groups
    assert [run.seed for run in base.counted] == [0, 1]
    assert (base.invalid, len(sync.counted)) == (None, 1)
    assert comparison.sections[0].difference(sync, comparison.sections[0].quantities[2]) is None
    assert main([str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "esync@base-seed2: invalid: overruns" in captured.err
    assert "not in the means of its group" in captured.err
    assert "1 invalid run left out" in captured.out
    assert "invalid: overruns" in next(line for line in captured.out.splitlines() if line.startswith("| SSGD"))


def test_target_that_some_runs_have_not_reached(logged, tmp_path: Path, capsys) -> None:
    logged("esync@a-seed0", 0, accuracy=0.7)
    logged("esync@a-seed1", 1)
    logged("sync", 0, accuracy=0.5)
    (section,) = compare(tmp_path).sections
    interval = section.groups[0].estimate(section.quantities[0])
    assert (interval.n, interval.low) == (1, None)
    assert main([str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "(1 of 2 reached it)" in output
    assert "not reached" in output
    assert "not known: a single run" in output
    assert main([str(tmp_path), "--target", "0.3"]) == 0
    assert "time to 0.3" in capsys.readouterr().out


def test_runs_that_had_different_targets_have_no_time_to_one(logged, tmp_path: Path) -> None:
    for name, target in (("esync", 0.5), ("sync", 0.8)):
        logged(name, 0, facts={"metric": {"name": "score", "goal": "max"}, "target": target})
        for path in (tmp_path / "lenet" / name).rglob("iter-*.txt"):
            path.write_text(path.read_text().replace('"accuracy"', '"score"'))
    (section,) = compare(tmp_path).sections
    assert (section.target, section.groups[0].estimate(TIME)) == (None, None)
    assert section.speedup(section.groups[0], "sync").reason == "no target"


def test_runs_of_different_networks_are_not_mixed(logged, tmp_path: Path, capsys) -> None:
    logged("esync", 0)
    logged("esync", 0, network="alexnet")
    comparison = compare(tmp_path)
    assert [section.network for section in comparison.sections] == ["alexnet", "lenet"]
    assert "compared apart: alexnet, test accuracy; lenet, test accuracy" in comparison.problems[-1]


def test_unfinished_runs_and_different_versions_are_said(logged, tmp_path: Path) -> None:
    logged("esync@a-seed0", 0, facts={"finished": False})
    logged("esync@a-seed1", 1, facts={"version": "2"})
    problems = str(compare(tmp_path).problems)
    assert "esync@a-seed0: the run has not come to its end on every device" in problems
    assert "ESync, a: runs of different versions of esync: 1, 2" in problems


@pytest.mark.usefixtures("pictures")
def test_csv_json_and_figures(logged, tmp_path: Path, capsys) -> None:
    two_groups(logged)
    out = tmp_path / "out"
    words = f"--csv {out}/runs.csv --json {out}/all.json --figure {out}/c.svg --figures {out}/f"
    assert main([f"{tmp_path}/lenet", *words.split()]) == 0
    rows = list(csv.DictReader((out / "runs.csv").open()))
    assert [(row["group"], row["seed"], row["option_overlap"]) for row in rows] == [
        ("ESync, base", "0", "False"), ("ESync, base", "1", "False"),
        ("ESync, over", "0", "True"), ("ESync, over", "1", "True"),
    ]  # fmt: skip
    evaluations = list(csv.DictReader((out / "runs-evaluations.csv").open()))
    assert len(evaluations) == sum(int(row["evaluations"]) for row in rows)
    assert {row["metric"] for row in evaluations} == {"accuracy"}
    content = read_json(out / "all.json")
    first, second = content["sections"][0]["groups"]
    assert first["differences"] is None
    assert second["differences"]["throughput"]["beyond_chance"] is False
    assert len(first["curve"]["sds"]) == len(first["curve"]["times"])
    assert "n = 2" in (out / "c.svg").read_text() or (out / "c.svg").stat().st_size > 10_000  # text may be paths
    assert sorted(path.stem for path in (out / "f").glob("*.png")) == [
        "accuracy-iid", "computing-time-ratio", "curves", "throughput", "traffic",
    ]  # fmt: skip
    before = (out / "c.svg").read_bytes()
    assert main([f"{tmp_path}/lenet", "--figure", f"{out}/c.svg"]) == 0
    assert (out / "c.svg").read_bytes() == before


def test_curves_without_evaluations_are_not_drawn_in_silence(logged, tmp_path: Path, capsys) -> None:
    folder = logged("esync", 0)
    for path in folder.rglob("iter-*.txt"):
        entry = read_json(path)
        entry.pop("accuracy", None)
        path.write_text(json.dumps(entry))
    assert main([str(folder), "--figure", str(tmp_path / "c.png"), "--csv", str(tmp_path / "c.csv")]) == 0
    assert "nothing was evaluated" in capsys.readouterr().err
    with (tmp_path / "c-evaluations.csv").open() as file:
        assert next(csv.reader(file)) == list(EVALUATION_COLUMNS)
    assert list(compare(str(folder)).evaluations()) == list(EVALUATION_COLUMNS)


def test_tables_fit_into_a_narrow_terminal(logged, tmp_path: Path, capsys, monkeypatch) -> None:
    two_groups(logged, half_time=30.0)
    monkeypatch.setenv("COLUMNS", "80")
    assert main([f"{tmp_path}/lenet"]) == 0
    in_a_file = capsys.readouterr().out
    assert max(map(len, in_a_file.splitlines())) > 80
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main([f"{tmp_path}/lenet"]) == 0
    tables = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert max(map(len, tables)) <= 80
    assert any(line.startswith("| ESync, over | 2 | final accuracy | 0.") for line in tables)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere*"], "nowhere*: no folder matches this pattern"),
        (["lenet", "--target", "2"], "--target 2: test accuracy should be 0 to 1"),
    ],
)
def test_mistakes_are_told_by_name(logged, tmp_path: Path, capsys, monkeypatch, words: list[str], message: str) -> None:
    logged("esync", 0)
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tool", "words", "message"),
    [
        *((tool, "logs --target nan", "nan: expected a finite number") for tool in (main, report.main)),
        (plot.main, "-b logs --target nan", "nan: expected a finite number"),
        (main, "x --figure curve.gif", "expected a name that ends in .png, .svg, .pdf"),
    ],
)
def test_value_that_cannot_be_used_is_refused(capsys, tool: Callable[[list[str]], int], words: str, message: str):
    with pytest.raises(SystemExit) as ended:
        tool(words.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", [b"esync@caf\xe9", b"mine\x1b[2J"])
def test_folders_with_odd_names_are_compared(tmp_path: Path, capsys, name: bytes) -> None:
    base = tmp_path / os.fsdecode(b"Jos\xe9")
    for folder in (base / "lenet" / os.fsdecode(name), base / "lenet/sync"):
        write_run(folder, {"cloud1/cpu": 0.5}, 30)
        for path in folder.rglob("run.json"):  # as a run writes it, whose mode has no such name
            change_json(path, mode="esync")
    table, page = tmp_path / "runs.csv", tmp_path / "report.html"
    assert main([str(base), "--csv", str(table), "--figure", str(tmp_path / "curves.png")]) == 0
    assert report.main([str(base), "-o", str(page)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert bytes(base) in table.read_bytes()
    assert "Jos" in page.read_text(encoding="utf-8")


def test_frames_of_pandas(logged, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    for seed in range(2):
        logged(f"esync@base-seed{seed}", seed)
    comparison = esync.compare(f"{tmp_path}/lenet/*")
    frame = comparison.frame()
    assert list(frame["seed"]) == [0, 1]
    assert frame.groupby("group")["throughput"].mean().iloc[0] > 0
    assert set(comparison.evaluations()["name"]) == {"base-seed0", "base-seed1"}


def test_missing_pandas_is_asked_for_by_name(logged, tmp_path: Path, monkeypatch) -> None:
    logged("esync", 0)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPandasError, match=r'pip install "esync\[pandas\]"'):
        compare(tmp_path).frame()


def test_event_files_without_the_package_are_refused_first(logged, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert main([str(logged("esync", 0)), "--tensorboard", str(tmp_path / "events")]) == 1
    captured = capsys.readouterr()
    assert 'pip install "esync[tensorboard]"' in captured.err
    assert captured.out == ""
