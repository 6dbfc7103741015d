"""Devices that report invented times, which nobody has to wait for."""

import sys
import textwrap
from pathlib import Path

import pytest

from esync.launch.hosts import Host
from esync.launch.spec import ProcessSpec
from esync.planning.device_measurement import MIN_ITERATIONS, measure_devices
from esync.planning.measuring_processes import MeasuringProcesses
from esync.planning.server_measurement import run_probes

pytestmark = pytest.mark.timeout(120)

HERE = Host("here", "127.0.0.1", True, "127.0.0.1")


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esync.config.MEASURE_DEVICES", 0.3)
    monkeypatch.setattr("esync.config.MEASURE_DEVICES_MAX", 60.0)
    monkeypatch.setattr("esync.config.MEASURE_START", 60.0)


#: What a device prints: `report(n, seconds)` tells of n more iterations that took so long each; with `half`, of as
#: many with half the batch.
PRELUDE = """
import json, os, sys, time
full, halves = ({"iterations": 0, "seconds": 0.0, "squares": 0.0, "samples": 0} for _ in range(2))
def add(done, n, seconds, batch):
    done["iterations"] += n; done["seconds"] += n * seconds; done["squares"] += n * seconds**2
    done["samples"] += batch * n
def report(n, seconds, half=None):
    add(full, n, seconds, 8)
    if half:
        add(halves, n, half, 4)
    event = {"kind": "measured", "vectors": {"weights": 10, "statistics": 2}, **full, "half": halves}
    print("@event " + json.dumps(event), flush=True)
def train(seconds, half=None):
    while True:
        report(1, seconds, half)
        time.sleep(0.01)
"""


def device(name: str, program: str) -> ProcessSpec:
    words = (sys.executable, "-c", PRELUDE + textwrap.dedent(program))
    return ProcessSpec(name, "worker", HERE, words, device=name)


def test_every_device_gets_its_figures(tmp_path: Path) -> None:
    messages: list[str] = []
    specs = [device("worker-0", "train(0.5)"), device("worker-1", "train(2.0, 1.5)")]
    figures, problems = measure_devices(specs, tmp_path, messages.append)
    assert problems == {}
    assert {name: figure.step_time for name, figure in figures.items()} == pytest.approx(
        {"worker-0": 0.5, "worker-1": 2.0}
    )
    assert all(figure.iterations >= MIN_ITERATIONS and figure.batch_size == 8 for figure in figures.values())
    assert figures["worker-0"].jitter == pytest.approx(0.0, abs=1e-6)
    assert figures["worker-0"].model_bytes == 48
    assert figures["worker-0"].fixed_time is None  # its batches have one size
    assert figures["worker-1"].fixed_time == pytest.approx(1.0)  # and 1 s for eight samples
    assert any("here/worker-1 takes 2000.0 ms an iteration" in line for line in messages)
    assert any("1000.0 ms of it do not depend on the batch size" in line for line in messages)


def test_iterations_before_all_devices_compute_do_not_count(tmp_path: Path) -> None:
    """The first one is faster as long as it is alone."""
    first = f"""
        while not os.path.exists({str(tmp_path / "second")!r}):
            report(100, 1.0)
            time.sleep(0.01)
        open({str(tmp_path / "slower")!r}, "w").close()
        train(3.0)
    """
    second = f"""
        open({str(tmp_path / "second")!r}, "w").close()
        while not os.path.exists({str(tmp_path / "slower")!r}):
            time.sleep(0.01)
        train(1.0)
    """
    specs = [device("worker-0", first), device("worker-1", second)]
    figures, _ = measure_devices(specs, tmp_path, lambda text: None)
    assert figures["worker-0"].step_time == pytest.approx(3.0)


def test_device_that_fails_is_named_and_the_others_are_measured(tmp_path: Path) -> None:
    specs = [
        device("worker-0", "train(0.5)"),
        device("worker-1", "print('no such device: gpu7'); sys.exit(3)"),
        device("worker-2", "report(1, 1.0); sys.exit('out of memory')"),
    ]
    messages: list[str] = []
    figures, problems = measure_devices(specs, tmp_path, messages.append)
    assert figures.keys() == {"worker-0"}
    assert problems == {
        "worker-1": "ended with exit code 3: no such device: gpu7",
        "worker-2": "ended with exit code 1: out of memory",
    }
    assert any(line.startswith("devices: here/worker-1 (worker-1) ended with exit code 3") for line in messages)


def test_device_that_never_trains_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esync.config.MEASURE_START", 5.0)
    specs = [device("worker-0", "train(0.5)"), device("worker-1", "print('loading'); time.sleep(600)")]
    figures, problems = measure_devices(specs, tmp_path, lambda text: None)
    assert figures.keys() == {"worker-0"}
    assert problems == {"worker-1": "has not done its first iterations within 5 s"}


def test_program_that_comes_to_its_end_counts_with_what_it_has_done(tmp_path: Path) -> None:
    figures, problems = measure_devices([device("worker-0", "report(9, 0.5)")], tmp_path, lambda text: None)
    assert problems == {}
    assert figures["worker-0"].iterations == 9


def test_waits_are_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esync.config.MEASURE_ANNOUNCE", 0.0)
    messages: list[str] = []
    specs = [device("worker-0", "time.sleep(0.5); train(0.5)")]
    measure_devices(specs, tmp_path, messages.append)
    assert any(line.startswith("devices: waiting for here/worker-0 to train") for line in messages)
    assert any(line.startswith("devices: measuring, ") for line in messages)


def test_processes_that_ignore_sigterm_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esync.config.LAUNCH_GRACE", 1.0)
    stubborn = device("worker-0", "import signal; signal.signal(15, signal.SIG_IGN); train(0.5)")
    with MeasuringProcesses([stubborn], tmp_path, lambda text: None) as processes:
        while processes.report("worker-0") is None:
            processes.turn()
    (process,) = processes.started.values()
    assert process.exit_code == -9


def test_probe_that_reports_nothing_is_named(tmp_path: Path) -> None:
    specs = [device("server-0", "report(1, 1.0)"), device("server-1", "print('no MXNet'); sys.exit(1)")]
    reports, problems = run_probes(specs, tmp_path, lambda text: None)
    assert reports.keys() == {"server-0"}
    assert problems == {"server-1": "ended with exit code 1: no MXNet"}
