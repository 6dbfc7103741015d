"""benchmarks/sparse_accuracy.py: its list of runs, their curves, and how it resumes."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from esync.data import load

from ..data import tiny_dataset

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
sparse_accuracy = importlib.import_module("sparse_accuracy")
sys.path.remove(str(BENCHMARKS))

Run = sparse_accuracy.Run
#: 40 samples, 8 epochs, batches of 4: 80 gradients of all workers together.
EPOCHS, BATCH_SIZE, SAMPLES = 8, 4, 320
SMALL = [f"--epochs={EPOCHS}", f"--batch-size={BATCH_SIZE}", "--seeds=1", "--workers=2", "--json=runs.json"]


@pytest.fixture
def data(tmp_path, monkeypatch):
    tiny_dataset.write(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return load("fashion-mnist", tmp_path / "data")


def curve_of(data):
    return sparse_accuracy.Curve(data.test_images / np.float32(255), data.test_labels, SAMPLES)


def kept():
    return json.loads(Path("runs.json").read_text())


def test_list_of_runs_is_table_3_and_begins_with_what_matters_most():
    runs = sparse_accuracy.chosen_runs(sparse_accuracy.parse_arguments([]))
    assert [(run.method, run.workers, run.seed) for run in runs[:3]] == [
        ("momentum SGD", 1, 0), ("DGS, sparse", 8, 0), ("DGS, sparse", 32, 0)
    ]  # fmt: skip
    of_seed_1 = {(run.method, run.workers) for run in runs if run.seed == 1}
    for method in ("ASGD", *(f"{name}, sparse{more}" for name in ("DGS", "DGC-async", "GD-async")
                             for more in ("", " both ways"))):  # fmt: skip
        assert {workers for each, workers in of_seed_1 if each == method} == {1, 4, 8, 16, 32}, method
    for method in ("DGS, sparse, momentum 0.3", "DGC-async, sparse, momentum 0.3"):
        assert {workers for each, workers in of_seed_1 if each == method} == {32}
    assert {run.seed for run in runs} == {0, 1, 2, 3, 4}
    assert len(runs) == len({run.name for run in runs}) == 5 * 38


@pytest.mark.parametrize(
    ("method", "momentum", "secondary_ratio"),
    [
        ("ASGD", 0.0, None),
        ("GD-async, sparse", 0.0, 0.0),
        ("DGS, sparse", 0.7, 0.0),
        ("DGS, sparse, momentum 0.3", 0.3, 0.0),
        ("DGS, sparse both ways", 0.7, 0.01),
        ("DGC-async, sparse, momentum 0.3", 0.3, 0.0),
    ],
)
def test_methods_train_with_their_momentum_and_secondary_compression(
    data, monkeypatch, method, momentum, secondary_ratio
):
    made = []

    class Numerics(sparse_accuracy.Numerics):
        def __init__(self, data, options, workers, momentum):
            made.append((momentum, options.secondary_ratio if secondary_ratio is not None else None))
            super().__init__(data, options, workers, momentum)

    monkeypatch.setattr(sparse_accuracy, "Numerics", Numerics)
    sparse_accuracy.together(data, Run(method, 2, 0), 1, BATCH_SIZE, curve_of(data))
    assert made == [(momentum, secondary_ratio)]


def test_curve_has_a_point_every_few_percent_and_leaves_the_training_as_it_is(data, monkeypatch):
    models = []
    real = sparse_accuracy.server_model
    monkeypatch.setattr(
        sparse_accuracy, "server_model", lambda *words: models.append(real(*words).values) or real(*words)
    )
    run, curve, none = Run("DGS, sparse both ways", 2, 0), curve_of(data), curve_of(data)
    sparse_accuracy.together(data, run, EPOCHS, BATCH_SIZE, curve)
    samples = [each for each, _ in curve.points]
    assert len(samples) == sparse_accuracy.POINTS
    assert samples == sorted(set(samples))
    assert samples[0] == 16  # the first commit at or after 4 % of 320 samples
    assert samples[-1] >= SAMPLES
    monkeypatch.setattr(none, "due", lambda samples: False)
    sparse_accuracy.together(data, run, EPOCHS, BATCH_SIZE, none)
    assert len(none.points) == 1
    assert none.points[-1] == curve.points[-1]
    assert models[-1].tobytes() == models[len(samples) - 1].tobytes() != models[0].tobytes()


def test_results_have_curves_and_costs_and_the_same_command_goes_on_where_it_was(data, capsys):
    words = [*SMALL, "--methods", "ASGD", "DGS, sparse"]
    assert sparse_accuracy.main(words) in (0, 1)  # 1: so little misses the target
    runs = kept()["runs"]
    assert list(runs) == [f"{name}, seed 0" for name in
                          ("momentum SGD, 1 workers", "ASGD, 2 workers", "DGS, sparse, 2 workers")]  # fmt: skip
    for name, run in runs.items():
        assert len(run["curve"]) == sparse_accuracy.POINTS, name
        assert run["curve"][-1][1] == run["accuracy"]
        assert run["core_seconds"] > 0
    assert {row["method"] for row in kept()["rows"]} == {run["method"] for run in runs.values()}
    assert "NaN" not in Path("runs.json").read_text()  # one seed has no interval
    # A run of an earlier version has no curve.  It is made anew, the others are not.
    earlier = kept()
    earlier["runs"]["ASGD, 2 workers, seed 0"] = {"method": "ASGD", "workers": 2, "accuracy": 0.0, "core_seconds": 1.0}
    Path("runs.json").write_text(json.dumps(earlier))
    capsys.readouterr()
    assert sparse_accuracy.main([*words, "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["done", "–", "done", "core-hours:"]
    sparse_accuracy.main(words)
    assert "DGS" not in capsys.readouterr().err
    again = kept()["runs"]
    assert again["ASGD, 2 workers, seed 0"]["curve"] == runs["ASGD, 2 workers, seed 0"]["curve"]
    assert again["DGS, sparse, 2 workers, seed 0"] == runs["DGS, sparse, 2 workers, seed 0"]


def test_budget_leaves_out_the_end_of_the_list(data, capsys):
    first, *_, last = sparse_accuracy.chosen_runs(sparse_accuracy.parse_arguments(SMALL))
    hours = first.planned(EPOCHS, BATCH_SIZE) * 1.01 / 3600
    sparse_accuracy.main([*SMALL, f"--budget={hours}"])
    assert list(kept()["runs"]) == [first.name]
    assert last.name in capsys.readouterr().out.splitlines()[0]


def test_budget_that_pays_for_nothing_is_said(data, capsys):
    assert sparse_accuracy.main([*SMALL, "--budget=0.000001"]) == 1
    assert "--budget" in capsys.readouterr().err
