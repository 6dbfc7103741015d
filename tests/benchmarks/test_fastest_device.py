"""benchmarks/fastest_device.py: tuned rates, flags, and the table of times."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
program = importlib.import_module("fastest_device")
sys.path.remove(str(ROOT / "benchmarks"))


def given(folder, *words):
    return program.parse_arguments(["--out", str(folder), *words])


def leave(folder, **curves):
    """Write finished runs: name of a run → seconds and accuracies of its evaluations."""
    kept = {
        name: {"result": {"accuracies": [[0, *each] for each in curve]}, "real": {"core_seconds": 1.0}}
        for name, curve in curves.items()
    }
    (folder / "runs.json").write_text(json.dumps(kept))


@pytest.mark.parametrize("cluster", ["paper", "equal", "demo"])
def test_fastest_device_runs_have_names_of_their_own_and_valid_flags(cluster, monkeypatch, tmp_path):
    from esync.simulate.__main__ import parse_arguments

    monkeypatch.chdir(ROOT)
    options = given(tmp_path, "--cluster", cluster)
    runs = [run for method in program.METHODS for run in program.tuning(options, method)]
    runs += [program.replace(runs[-1], without=limit, held_out=False) for limit in program.LIMITS]
    assert len({run.name for run in runs}) == len(runs)
    for run in runs:
        _, *words = run.words(options)
        simulated, job = parse_arguments(words[2:])
        assert simulated.file.is_file()
        assert ("dataset" in job.typed) == run.held_out


def test_tuned_is_the_setting_that_is_soonest_at_the_targets(tmp_path):
    options = given(tmp_path)
    runs = program.tuning(options, "local")
    curves = {run.name: [(10, 0.85), (40, 0.88), (200, 0.90)] for run in runs}
    curves[runs[2].name] = [(5, 0.85), (30, 0.88), (210, 0.90)]  # later at the last one, but sooner in the mean
    curves[runs[3].name] = [(9, 0.85), (39, 0.88)]  # never at the last one: 600 s
    leave(tmp_path, **curves)
    assert program.tuned(options, "local") == (runs[2].factor, runs[2].momentum)


def test_table_says_how_much_sooner_than_alone_and_where_a_target_is_missed(tmp_path):
    options = given(tmp_path, "--methods", "local", "esync", "--seeds", "2")
    curves = {}
    for method, factor in (("local", 1.0), ("esync", 2.0)):
        for run in program.tuning(options, method):
            curves[run.name] = [(100, 0.90)]
        best = program.tuning(options, method)[1]
        curves[best.name] = [(50, 0.90)]
        for seed in (1, 2):
            run = program.SpeedRun("paper", method, "iid", seed, best.factor, best.momentum)
            last = 0.90 if method == "local" or seed == 1 else 0.89
            curves[run.name] = [(10 * factor, 0.85), (20 * factor, 0.88), (30 * factor, last)]
    leave(tmp_path, **curves)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in program.table(options).splitlines()]
    alone, esync = rows[2], rows[3]
    assert alone == ["local", "× 1", "0", "2", "10.0 ± 0.0", "1.00", "20.0 ± 0.0", "1.00", "30.0 ± 0.0", "1.00"]
    assert esync[4:] == ["20.0 ± 0.0", "0.50", "40.0 ± 0.0", "0.50", "missed by 1 of 2", "–"]
