"""The harness of the benchmarks: timing, figures, clusters, and processes that never outlive it."""

import math

import pytest

from esync.reports import metrics_table
from esync.reports.modes import mode_of
from esync.reports.published_smoothing import smoothed
from esync.reports.summary_file import DeviceSummary

from ..support.benchmark_programs import benchmark
from ..support.child import alive, ends

clusters, figures, jobs, thinning, timing = (
    benchmark(f"harness.{name}") for name in ("clusters", "figures", "jobs", "thinning", "timing")
)


def test_in_turns_alternates_and_drops_the_warm_up():
    taken = []

    def way(name):
        return lambda: taken.append(name) or len(taken)

    times = timing.in_turns({"one": way("one"), "other": way("other")}, turns=2, warm_up=1)
    assert taken == ["one", "other"] * 3
    assert times == {"one": [3, 5], "other": [4, 6]}
    assert timing.medians(times) == {"one": 4, "other": 5}


def test_interval_is_a_students_confidence_interval():
    mean, half = figures.interval([0.90, 0.92, 0.91])
    assert (round(mean, 4), round(half, 4)) == (0.91, 0.0248)
    assert math.isnan(figures.interval([0.9])[1])
    assert figures.interval([0.9] * 30) == (pytest.approx(0.9), pytest.approx(0.0))


def test_figures_are_written_with_nine_digits_and_a_line_for_each_key(tmp_path):
    figures.write_figures(tmp_path / "one.json", {"seconds": 0.12345678901234567, "runs": [{"k": 10**12}, (1.5, None)]})
    assert (tmp_path / "one.json").read_text() == (
        '{\n"seconds": 0.123456789,\n"runs": [{"k":1000000000000},[1.5,null]]\n}\n'
    )


def summary(waits):
    """A summary of 12 rounds of one device, all of which are evaluated."""
    numbers = list(range(1, 13))
    device = DeviceSummary(
        accuracy_list=[number / 20 for number in numbers],
        num_samples_list=[64] * 12,
        self_iters_list=[1] * 12,
        elapsed_time_list=[2 * number for number in numbers],
        aggregate_time_list=[1.23456789] * 12,
        rounds_list=numbers,
        accuracy_rounds=numbers,
        accuracy_time_list=[2.0 * number for number in numbers],
        accuracy_exact_list=[number / 20 for number in numbers],
        computing_time_list=[0.5] * 12,
        bytes_sent_list=numbers,
        bytes_received_list=numbers,
        wait_list=waits,
        transfer_list=[1.23456789] * 12,
        total_time_list=[2.0 * number for number in numbers],
        total_time=24.0,
    )
    return {"cloud1": {"cpu": device}}


def test_thinned_summary_gives_the_same_figures_and_the_same_smoothed_curve():
    full = summary([0.0] * 12)
    thin = thinning.thinned_summary(full)
    device = thin["cloud1"]["cpu"]
    assert (device.rounds_list, device.rounds, device.missing_rounds) == ([1, 6, 11, 12], 12, 0)
    assert device.num_samples_list == [64, 5 * 64, 5 * 64, 64]
    assert device.aggregate_time_list == [1.2346, 6.1728, 6.1728, 1.2346]
    one, other = (metrics_table.run_figures(mode_of("async"), run, 0.5) for run in (full, thin))
    for name in ("times", "accuracies", "throughput", "bytes_sent", "bytes_received", "total_time"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.devices[0].computing_ratio == other.devices[0].computing_ratio
    assert smoothed(one).times == smoothed(other).times
    assert smoothed(one).accuracies == smoothed(other).accuracies


def test_cluster_results_are_the_last_lines_of_the_workers():
    with clusters.Cluster(2) as cluster:
        for number in range(2):
            code = f"print('warm'); print(json.dumps([{number}, os.environ['DMLC_ROLE']]))"
            cluster.start_worker("-c", f"import json, os; {code}")
        assert cluster.results() == [[0, "worker"], [1, "worker"]]


def test_cluster_worker_that_fails_is_named_with_its_output():
    with clusters.Cluster(1) as cluster:
        cluster.start_worker("-c", "import sys; print('this is why', file=sys.stderr); sys.exit(3)")
        with pytest.raises(RuntimeError, match="worker-0 has failed, exit code 3:\nthis is why"):
            cluster.results()


def test_cluster_exit_ends_all_its_processes():
    child = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid)"
    )
    with clusters.Cluster(1) as cluster:
        cluster.start_worker("-c", f"{child}; sys.stdout.flush(); import time; time.sleep(600)")
        (worker,) = cluster.workers
        grandchild = int(worker.stdout.readline())
        assert alive(worker.pid)
        assert alive(grandchild)
    assert not alive(worker.pid)
    assert ends(grandchild)  # it has been killed, which takes effect in its own time
