"""benchmarks/sparse_accuracy.py: its list of runs, their curves, and how it resumes."""

import json
from pathlib import Path

import pytest

from esync.data import load

from ..data import tiny_dataset
from ..support.benchmark_programs import benchmark

sparse_accuracy = benchmark("sparse_accuracy")

Run = sparse_accuracy.Run
#: 40 samples, 8 epochs, batches of 4: 80 gradients of all workers together.
EPOCHS, BATCH_SIZE, SAMPLES = 8, 4, 320
SMALL = [f"--epochs={EPOCHS}", f"--batch-size={BATCH_SIZE}", "--seeds=1", "--workers=2", "--json=runs.json"]


@pytest.fixture
def data(tmp_path, monkeypatch):
    tiny_dataset.write(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return load("fashion-mnist", tmp_path / "data")


def stored_results():
    return json.loads(Path("runs.json").read_text())


def test_results_have_curves_and_costs_and_the_same_command_goes_on_where_it_was(data, capsys):
    words = [*SMALL, "--methods", "ASGD", "DGS, sparse"]
    assert sparse_accuracy.main(words) in (0, 1)  # 1: so little misses the target
    runs = stored_results()["runs"]
    assert list(runs) == [f"{name}, seed 0" for name in
                          ("momentum SGD, 1 workers", "ASGD, 2 workers", "DGS, sparse, 2 workers")]  # fmt: skip
    for name, run in runs.items():
        assert len(run["curve"]) == sparse_accuracy.POINTS, name
        assert run["curve"][-1][1] == run["accuracy"]
        assert run["core_seconds"] > 0
    assert {row["method"] for row in stored_results()["rows"]} == {run["method"] for run in runs.values()}
    assert "NaN" not in Path("runs.json").read_text()  # one seed has no interval
    # A run of an earlier version has no curve.  It is made anew, the others are not.
    earlier = stored_results()
    earlier["runs"]["ASGD, 2 workers, seed 0"] = {"method": "ASGD", "workers": 2, "accuracy": 0.0, "core_seconds": 1.0}
    Path("runs.json").write_text(json.dumps(earlier))
    capsys.readouterr()
    assert sparse_accuracy.main([*words, "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["done", "–", "done", "core-hours:"]
    sparse_accuracy.main(words)
    assert "DGS" not in capsys.readouterr().err
    again = stored_results()["runs"]
    assert again["ASGD, 2 workers, seed 0"]["curve"] == runs["ASGD, 2 workers, seed 0"]["curve"]
    assert again["DGS, sparse, 2 workers, seed 0"] == runs["DGS, sparse, 2 workers, seed 0"]


def test_budget_leaves_out_the_end_of_the_list(data, capsys):
    first, *_, last = sparse_accuracy.chosen_runs(sparse_accuracy.parse_arguments(SMALL))
    hours = first.planned(EPOCHS, BATCH_SIZE) * 1.01 / 3600
    sparse_accuracy.main([*SMALL, f"--budget={hours}"])
    assert list(stored_results()["runs"]) == [first.name]
    assert last.name in capsys.readouterr().out.splitlines()[0]
