"""benchmarks/fastest_device.py: tuned settings, flags, and the table of times."""

import pytest

from ..support.benchmark_programs import ROOT, benchmark, leave, simulations_of

program = benchmark("fastest_device")


def parse(folder, *words):
    return program.parse_arguments(["--out", str(folder), *words])


@pytest.mark.parametrize("cluster", program.CLUSTERS)
def test_fastest_device_runs_have_names_of_their_own_and_valid_flags(cluster, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    options = parse(tmp_path, "--cluster", cluster)
    runs = [run for method in program.METHODS for run in program.tuning(options, method)]
    assert len(program.tuning(options, program.BEST)) <= 24
    for run, job in simulations_of(runs, options):
        assert ("dataset" in job.typed) == run.held_out


def test_tuned_is_the_setting_that_is_soonest_at_the_targets(tmp_path):
    options = parse(tmp_path)
    runs = program.tuning(options, "local")
    curves = {run.name: [(10, 0.85), (40, 0.88), (200, 0.90)] for run in runs}
    curves[runs[2].name] = [(5, 0.85), (30, 0.88), (210, 0.90)]  # later at the last one, but sooner in the mean
    curves[runs[3].name] = [(9, 0.85), (39, 0.88)]  # never at the last one: 600 s
    leave(tmp_path, curves)
    assert program.tuned(options, "local") == runs[2].setting


def test_table_compares_with_the_device_alone_and_with_the_best_of_the_grid(tmp_path):
    options = parse(tmp_path, "--cluster", "generations", "--methods", "local", "best", "fast", "--seeds", "2")
    curves = {}
    for method, factor in (("local", 3.0), ("best", 1.0), ("fast", 1.25)):
        runs = program.tuning(options, method)
        for run in runs:
            curves[run.name] = [(100, 0.90)]
        curves[runs[0].name] = [(50, 0.90)]
        for seed in (1, 2):
            run = program.SpeedRun(runs[0].cluster, method, runs[0].setting, seed)
            last = 0.89 if method == "fast" and seed == 2 else 0.90
            curves[run.name] = [(10 * factor, 0.85), (20 * factor, 0.88), (30 * factor, last)]
    leave(tmp_path, curves)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in program.table(options).splitlines()]
    alone, best, fast = rows[2:]
    # The device alone was run with 0.03 s a batch, the fastest one here takes 0.02 s.
    assert alone[2:5] == ["2", "20.0 ± 0.0", "1.00"]
    assert best[3:] == ["10.0 ± 0.0", "2.00", "20.0 ± 0.0", "2.00", "30.0 ± 0.0", "2.00", "1.00"]
    assert fast[3:] == ["12.5 ± 0.0", "1.60", "25.0 ± 0.0", "1.60", "missed by 1 of 2", "–", "–"]
