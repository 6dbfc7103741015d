"""benchmarks/data_by_class.py and sparse_resnet.py: flags, the tuned rate, and the tables."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from esync.simulate.__main__ import parse_arguments

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
by_class = importlib.import_module("data_by_class")
sparse = importlib.import_module("sparse_resnet")
sys.path.remove(str(ROOT / "benchmarks"))
BEST = by_class.tuning()[1]


def leave(folder, curves, seconds=180.0):
    """Write finished runs: name of a run → seconds and accuracies of its evaluations."""
    folder.mkdir(exist_ok=True)
    kept = {
        name: {
            "result": {
                "accuracies": [[0, *each] for each in curve],
                "seconds": seconds,
                "final_accuracy": curve[-1][1],
            },
            "real": {"core_seconds": 1.0},
        }
        for name, curve in curves.items()
    }
    (folder / "runs.json").write_text(json.dumps(kept))


def test_by_class_runs_have_names_of_their_own_and_valid_flags(tmp_path):
    options = by_class.parse_arguments(["--out", str(tmp_path)])
    runs = [*by_class.tuning(), *by_class.reported(BEST, 3)]
    # Five are tuned; two and five minutes with three seeds, ten with one, both by class and not; all devices in.
    assert len({run.name for run in runs}) == len(runs) == 5 + 7 * 2 + 2
    for run in runs:
        _, *words = run.words(options)
        simulated, job = parse_arguments(words[2:])
        assert simulated.file.is_file()
        assert ("dataset" in job.typed) == run.held_out
        assert job.typed["preset"] == "skewed-data"
        assert job.typed["partition"] == ("class" if run.data == "niid" else "contiguous")
        assert job.typed.get("momentum", 0.0) == run.momentum
        assert job.typed["epochs"] == run.epochs
        assert job.typed.get("leave_out") == ("none" if run.all_in else None)
        assert job.typed.get("weighting", "") == run.all_in
        assert job.typed.get("slowest_iterations") == run.iterations


def test_by_class_tuned_is_the_rate_that_ends_best_once_all_were_tried(tmp_path):
    runs = by_class.tuning()
    curves = {run.name: [(10, 0.9), (89, 0.80)] for run in runs}
    curves[runs[1].name] = [(10, 0.5), (89, 0.85)]
    leave(tmp_path, {name: curve for name, curve in curves.items() if name != runs[0].name}, 90.0)
    assert by_class.tuned(tmp_path) is None
    leave(tmp_path, curves, 90.0)
    assert by_class.tuned(tmp_path) == runs[1]


def test_by_class_without_tuning_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["data_by_class.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="--tune first"):
        by_class.main()


def test_sparse_runs_have_names_of_their_own_and_valid_flags(tmp_path):
    options = sparse.parse_arguments(["--out", str(tmp_path)])
    runs = sparse.runs(2, 6)
    assert len({run.name for run in runs}) == len(runs) == 22
    for run in runs:
        _, *words = run.words(options)
        simulated, job = parse_arguments(words[2:])
        assert simulated.file.is_file()
        assert job.typed.get("momentum", 0.0) == (0.7 if run.method.startswith(("DG", "momentum")) else 0.0)
