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


def cells(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


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
        assert job.typed.get("slowest_iterations", 8) == run.iterations


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


def test_by_class_table_has_both_kinds_of_data_beside_synchronous_sgd(tmp_path, monkeypatch):
    leave(
        tmp_path / "compared", {"resnet18-v1x0.25-groupnorm-sync-niid": [(60, 0.3), (1600, 0.81), (7100, 0.85)]}, 7200.0
    )
    monkeypatch.setattr(by_class, "COMPARED", tmp_path / "compared")
    one, other, long, *_ = (run.name for run in by_class.reported(BEST, 2) if run.data == "niid")
    leave(
        tmp_path,
        {
            one: [(20, 0.8), (60, 0.84), (120, 0.86), (175, 0.87)],
            other: [(30, 0.8), (60, 0.8), (120, 0.82), (175, 0.83)],
            long: [(40, 0.8), (300, 0.88)],
        },
    )
    rows = cells(by_class.table(tmp_path, BEST, 2))
    assert rows[0][2:8] == [
        "seconds to 0.8",
        "seconds to 0.85",
        "seconds to 0.88",
        "after 30 s",
        "after 60 s",
        "after 120 s",
    ]
    assert rows[2][0] == "preset skewed-data, 16 epochs, niid"
    assert rows[2][1:5] == ["2", "25.0 ± 7.1", "by 1", "by 0"]
    assert rows[2][5:8] == ["0.800 ± 0.000", "0.820 ± 0.028", "0.840 ± 0.028"]
    assert rows[2][-1] == "0.850 ± 0.028"
    assert rows[3][:5] == ["preset skewed-data, 40 epochs, niid", "1", "40.0", "300.0", "300.0"]
    assert rows[4][:3] == ["synchronous SGD, group norm, niid", "1", "1600.0"]


def test_by_class_figure_is_drawn_from_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(by_class, "COMPARED", tmp_path / "compared")
    leave(tmp_path, {run.name: [(20, 0.8), (100, 0.86)] for run in by_class.reported(BEST, 1)})
    by_class.draw(tmp_path, BEST, 1, tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")


def test_accuracy_at_a_time_is_the_mean_around_it():
    result = {"accuracies": [(0, 10, 0.2), (0, 55, 0.5), (0, 65, 0.7), (0, 100, 0.9)]}
    assert by_class.accuracy_at(result, 60) == pytest.approx(0.6)
    assert by_class.accuracy_at(result, 108) == 0.9
    assert by_class.accuracy_at(result, 85) is None
    assert by_class.accuracy_at(result, 300) is None


def test_sparse_runs_have_names_of_their_own_and_valid_flags(tmp_path):
    options = sparse.parse_arguments(["--out", str(tmp_path)])
    runs = sparse.runs(2, 6)
    assert len({run.name for run in runs}) == len(runs) == 22
    for run in runs:
        _, *words = run.words(options)
        simulated, job = parse_arguments(words[2:])
        assert simulated.file.is_file()
        assert job.typed.get("momentum", 0.0) == (0.7 if run.method.startswith(("DG", "momentum")) else 0.0)


def test_sparse_table_compares_with_momentum_sgd_alone(tmp_path):
    names = {run.method: run.name for run in sparse.runs(1, 6) if run.workers in (1, 4)}
    leave(tmp_path, {names[sparse.ALONE]: [(100, 0.9), (175, 0.89)], names["DGS"]: [(100, 0.8), (175, 0.88)]})
    rows = cells(sparse.table(tmp_path, 1, 6))
    assert rows[2] == [sparse.ALONE, "1", "1", "89.00", "+0.00", "90.00"]
    assert rows[3] == ["DGS", "4", "1", "88.00", "-1.00", "88.00"]
