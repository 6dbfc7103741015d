"""benchmarks/data_by_class.py and sparse_resnet.py: flags, the tuned settings, and the tables."""

import sys
from dataclasses import replace

import pytest

from esync.runtime.errors import ExpectedError

from ..support.benchmark_programs import benchmark, leave, simulations_of

by_class = benchmark("data_by_class")
sparse = benchmark("sparse_resnet")


RECALLS = {"recall/a": 1.0, "recall/b": 0.6, "recall/c": 0.2}


def test_by_class_runs_have_names_of_their_own_and_valid_flags(tmp_path):
    tuned = [run for method in by_class.METHODS for run in by_class.tuning(method)]
    assert all(0 < len(by_class.tuning(method)) <= 9 for method in by_class.METHODS)
    best = {run.method: run for run in tuned}
    reported = [replace(run, case=case, held_out=False, seed=1) for run in best.values() for case in by_class.CASES]
    for run, job in simulations_of([*tuned, *reported], by_class.parse_arguments(["--out", str(tmp_path)])):
        assert ("dataset" in job.typed) == run.held_out
        assert job.typed["partition"] == by_class.CASES[run.case].partition
        assert job.typed.get("momentum", 0.0) == run.momentum
        assert job.typed["max_time"] == 60 * run.minutes
        if flag := by_class.INTERVALS.get(run.method):
            assert job.typed[flag.replace("-", "_")] == run.interval


def test_by_class_tuned_is_the_setting_that_ends_best_once_all_were_tried(tmp_path):
    runs = by_class.tuning("sync")
    curves = {run.name: [(10, 0.9), (89, 0.80)] for run in runs}
    curves[runs[1].name] = [(10, 0.5), (89, 0.85)]
    leave(tmp_path, {name: curve for name, curve in curves.items() if name != runs[0].name}, seconds=90.0)
    assert by_class.tuned(tmp_path, "sync") is None
    leave(tmp_path, curves, seconds=90.0)
    assert by_class.tuned(tmp_path, "sync") == runs[1]


def test_by_class_table_has_times_of_all_seeds_and_the_lowest_recalls(tmp_path):
    options = by_class.parse_arguments(["--out", str(tmp_path), "--methods", "sync", "--seeds", "2"])
    curves = {run.name: [(30, 0.9)] for run in by_class.tuning("sync")}
    leave(tmp_path, curves, seconds=30.0, final_parts=RECALLS)
    reported = by_class.reported(options)
    ends = {reported[0].name: [(10, 0.7), (26, 0.85)], reported[1].name: [(30, 0.85)]}
    leave(tmp_path, {**curves, **ends}, seconds=30.0, final_parts=RECALLS)
    row = by_class.table(options).splitlines()[-1].split(" | ")
    assert row[2:6] == ["2", "28 ± 3", "28 ± 3", "by 0 of 2"]
    assert row[-2:] == ["0.20, 0.60", "0.33 |"]


def test_by_class_without_tuning_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["data_by_class.py", "--out", str(tmp_path)])
    with pytest.raises(ExpectedError, match="--tune first"):
        by_class.main()


def test_sparse_runs_have_names_of_their_own_and_valid_flags(tmp_path):
    runs = sparse.runs(2, 6)
    assert {(run.workers, run.seed) for run in runs} == {(n, seed) for n in (1, 4, 8, 16) for seed in (0, 1)} | {
        (32, 0)
    }
    momenta = {"DGS, momentum 0.3": 0.3, "DGS, momentum 0": 0, "DGC-async, momentum 0": 0}
    without = {"ASGD", "GD-async", "ASGD, rate ÷ 4", "GD-async, rate ÷ 4"}
    for run, job in simulations_of(runs, sparse.parse_arguments(["--out", str(tmp_path)])):
        assert job.typed.get("momentum") == (None if run.method in without else momenta.get(run.method, 0.7))
        assert job.typed["learning_rate"] == (0.000125 if "÷" in run.method else 0.0005)
        assert ("lr_decay" in job.typed) == ("does not fall" not in run.method)
