"""benchmarks/beyond_paper.py --minutes: runs of equal time, tuned rates, and their table."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
beyond = importlib.import_module("beyond_paper")
beyond_runs = importlib.import_module("harness.beyond_runs")
equal_time = importlib.import_module("harness.equal_time")
sys.path.remove(str(ROOT / "benchmarks"))

MLP = beyond_runs.SETTINGS["mlp"]


def given(folder, *words):
    return beyond.parse_arguments(["--network", "mlp", "--minutes", "2", "--out", str(folder), *words])


def leave(folder, *runs):
    """Write finished runs: pairs of a run and the accuracies of its evaluations, one every 30 s."""
    file = folder / "runs.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    for run, accuracies in runs:
        curve = [[number, 30.0 * number, accuracy] for number, accuracy in enumerate(accuracies, 1)]
        result = {"accuracies": curve, "seconds": 30.0 * len(curve)}
        kept[run.name] = {"result": result, "real": {"core_seconds": 1800.0}}
    file.write_text(json.dumps(kept))


def tuning(folder, variant, data="niid", **best):
    """Write the runs that tune a variant, one factor of which is the best."""
    runs = [run for run in beyond_runs.equal_time_runs(given(folder, "--tune"), MLP) if run.variant == variant]
    runs = [run for run in runs if run.data == data]
    leave(folder, *((run, [0.5, 0.6, 0.6, 0.9 if run.factor == best["factor"] else 0.7]) for run in runs))


def cells(table, data, variant):
    part = next(part for part in table.split("\n\n") if part.startswith(f"| {data} "))
    heads, _, *rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in part.strip().splitlines()]
    return dict(zip(heads, next(row for row in rows if row[0] == variant), strict=True))


def test_equal_time_runs_have_their_own_names_and_valid_flags(monkeypatch, tmp_path):
    from esync.simulate.__main__ import parse_arguments

    monkeypatch.chdir(ROOT)
    tuned, reported = given(tmp_path, "--tune"), given(tmp_path, "--seeds", "2")
    runs = beyond_runs.equal_time_runs(tuned, MLP) + beyond_runs.equal_time_runs(reported, MLP)
    variants = len(beyond_runs.EQUAL_TIME)
    assert len({run.name for run in runs}) == len(runs) == variants * 2 * (len(beyond_runs.FACTORS) + 2)
    for run in runs:
        _, *words = run.words(tuned)
        assert words[:2] == ["-m", "esync.simulate"]
        options, job = parse_arguments(words[2:])
        assert options.file.exists()
        assert job.typed["max_time"] == 120
        assert job.typed["eval_duration"] == 1
        assert job.typed["partition"].startswith("class" if run.data == "niid" else "contiguous")
        assert ("dataset" in job.typed) == run.held_out == (run.seed == beyond_runs.TUNING_SEED)
        assert run.planned() > 0


def test_equal_time_variants_with_shares_by_speed_give_each_worker_its_weight(tmp_path):
    runs = beyond_runs.equal_time_runs(given(tmp_path, "--variants", "esync-speed"), MLP)
    assert ["--partition=class:117,117,1,117,117,1" in run.words(given(tmp_path)) for run in runs] == [True, False]
    assert "--partition=contiguous:117,117,1,117,117,1" in runs[1].words(given(tmp_path))


@pytest.mark.parametrize("variant", ["esync-fedprox-1", "esync-scaffold"])
def test_fedprox_and_scaffold_with_the_clock_of_esync_keep_fast_devices_busy(monkeypatch, tmp_path, variant):
    from esync.simulate.__main__ import main

    monkeypatch.chdir(ROOT)
    flags = [*beyond_runs.EQUAL_TIME[variant].flags, "--numerics=none", "--no-logs", "--quiet", "--max-time=40"]
    assert main([MLP.file, *flags, f"--json={tmp_path / 'run.json'}"]) == 0
    result = json.loads((tmp_path / "run.json").read_text())
    iterations = [device["iterations"] / device["rounds"] for device in result["devices"]]
    fast = pytest.approx(115, abs=3)
    assert iterations == [fast, fast, 1, fast, fast, 1]


def test_equal_time_rates_are_those_that_are_best_on_the_images_kept_back(tmp_path):
    assert beyond_runs.tuned(given(tmp_path), "esync", "niid", MLP) is None
    tuning(tmp_path, "esync", factor=0.25)
    tuning(tmp_path, "sync", factor=2.0)
    reported = beyond_runs.equal_time_runs(given(tmp_path, "--variants", "esync", "sync"), MLP)
    rates = {(run.variant, run.data): run.words(given(tmp_path)) for run in reported}
    assert "--local-lr=0.00025" in rates["esync", "niid"]
    assert "--learning-rate=0.002" in rates["sync", "niid"]
    assert "--local-lr=0.001" in rates["esync", "iid"]  # not tuned


def test_equal_time_rate_is_not_tuned_before_all_factors_are_tried(tmp_path):
    tuning(tmp_path, "esync", factor=0.25)
    runs = json.loads((tmp_path / "runs.json").read_text())
    runs.pop(next(name for name in runs if "x2" in name))
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    assert beyond_runs.tuned(given(tmp_path), "esync", "niid", MLP) is None


def test_equal_time_table_has_times_accuracies_and_who_is_ahead(tmp_path):
    asked = given(tmp_path, "--seeds", "2", "--variants", "sync", "esync", "esync-momentum")
    curves = {
        "sync": [[0.3, 0.5, 0.72, 0.80], [0.3, 0.5, 0.72, 0.80]],
        "esync": [[0.5, 0.6, 0.70, 0.74], [0.5, 0.6, 0.68, 0.76]],
        "esync-momentum": [[0.4, 0.4, 0.76, 0.82], [0.4, 0.7, 0.74, 0.84]],
    }
    for run in beyond_runs.equal_time_runs(asked, MLP):
        if run.data == "niid":
            leave(tmp_path, (run, curves[run.variant][run.seed - 1]))
    table = equal_time.table(asked, MLP)
    assert "| iid" not in table
    assert cells(table, "niid", "esync") == {
        "niid": "esync", "rate": "× 1, not tuned", "seeds": "1, 2",
        "to 0.7": "105 ± 21 s", "to 0.75": "120 s (1 of 2)",
        "to 0.8": "–", "1 min": "0.600 ± 0.000", "2 min": "0.750 ± 0.014", "last third": "0.720 ± 0.000",
        "ahead of ESync": "–", "ahead of SSGD": "1 min",
    }  # fmt: skip
    momentum = cells(table, "niid", "esync-momentum")
    assert momentum["ahead of ESync"] == "2 min, last third"  # after 1 min by less than the seeds differ
    assert momentum["ahead of SSGD"] == "2 min, last third"
    assert cells(table, "niid", "sync")["ahead of SSGD"] == "–"


def test_equal_time_table_names_the_tuned_rate(tmp_path):
    tuning(tmp_path, "esync", factor=0.5)
    asked = given(tmp_path, "--variants", "esync")
    leave(tmp_path, *((run, [0.1, 0.2, 0.3, 0.4]) for run in beyond_runs.equal_time_runs(asked, MLP)))
    table = equal_time.table(asked, MLP)
    assert cells(table, "niid", "esync")["rate"] == "× 0.5"
    assert cells(table, "iid", "esync")["rate"] == "× 1, not tuned"


def test_equal_time_table_has_a_dash_before_the_first_evaluation(tmp_path):
    run = beyond_runs.EqualTimeRun("esync", "iid", 1, MLP, 2.0)
    leave(tmp_path, (run, [0.5, 0.6, 0.7, 0.8]))
    file = tmp_path / "runs.json"
    kept = json.loads(file.read_text())
    kept[run.name]["result"]["accuracies"] = [[1, 100.0, 0.7]]
    file.write_text(json.dumps(kept))
    found = cells(equal_time.table(given(tmp_path), MLP), "iid", "esync")
    assert (found["1 min"], found["2 min"]) == ("–", "0.700")


def test_images_kept_back_are_no_training_images_and_the_others_keep_their_order(monkeypatch, tmp_path):
    class Data:
        train_images = np.arange(120, dtype=np.uint8).repeat(4).reshape(120, 2, 2)
        train_labels = np.arange(120) % 10

    monkeypatch.setattr(beyond_runs, "load", lambda name: Data)
    beyond_runs.write_held_out(tmp_path)
    made = np.load(tmp_path / "held-out.npz")
    trained, kept_back = (list(made[name][:, 0, 0]) for name in ("x_train", "x_test"))
    assert (len(trained), len(kept_back)) == (110, 10)
    assert trained == sorted(trained)
    assert set(trained) | set(kept_back) == set(range(120))
    assert list(made["y_train"]) == [number % 10 for number in trained]
    assert list(made["y_test"]) == [number % 10 for number in kept_back]


def test_equal_time_lists_costs_and_leaves_out_what_is_over_the_budget(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(beyond_runs.EqualTimeRun, "planned", lambda run: 1800.0)
    first = beyond_runs.equal_time_runs(given(tmp_path), MLP)[0]
    leave(tmp_path, (first, [0.1, 0.2, 0.3, 0.4]))
    words = ["--network", "mlp", "--minutes", "2", "--out", str(tmp_path), "--budget", "1"]
    assert beyond.main([*words, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["done", "–", "over"]
    assert lines[-1] == "core-hours: planned 1.0, spent 0.5"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tune"], "give --minutes"),
        (["--list"], "give --minutes"),
        (["--budget", "1"], "give --minutes"),
        (["--variants", "esync-momentum"], "esync-momentum: for runs of equal time only"),
        (["--minutes", "0"], "--minutes 0: expected"),
        (["--minutes", "nan"], "--minutes nan: expected"),
        (["--minutes", "5", "--to-the-end"], "contradict"),
        (["--minutes", "5", "--budget", "0"], "--budget: 0: expected"),
    ],
)
def test_equal_time_options_that_make_no_sense_exit_with_2(words, told, capsys):
    with pytest.raises(SystemExit) as caught:
        beyond.parse_arguments(words)
    assert caught.value.code == 2
    assert told in capsys.readouterr().err


def test_equal_time_table_compares_only_where_both_have_been_evaluated(tmp_path):
    asked = given(tmp_path, "--seeds", "2", "--variants", "sync", "esync")
    for run in beyond_runs.equal_time_runs(asked, MLP):
        leave(tmp_path, (run, [0.5, 0.6, 0.7, 0.8] if run.variant == "esync" else [0.1, 0.2, 0.3, 0.4]))
    file = tmp_path / "runs.json"
    kept = json.loads(file.read_text())
    for name in (name for name in kept if name.startswith("sync-")):
        kept[name]["result"]["accuracies"] = [[1, 100.0, 0.3], [2, 120.0, 0.4]]
    file.write_text(json.dumps(kept))
    table = equal_time.table(asked, MLP)
    assert cells(table, "niid", "esync")["ahead of SSGD"] == "2 min, last third"
    assert cells(table, "niid", "sync")["ahead of ESync"] == "never"
