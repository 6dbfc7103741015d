"""The programs whose runs are kept in one file: wrong options, damaged files, and signals."""

import signal
import subprocess
import sys
import time
from types import ModuleType

import pytest

from esync.runtime.errors import ExpectedError

from ..support import child
from ..support.benchmark_programs import ROOT, benchmark

BENCHMARKS = ROOT / "benchmarks"
PROGRAMS = {
    name: benchmark(name)
    for name in (
        *("data_by_class", "fastest_device", "reproduce_paper"),
        *("sparse_accuracy", "sparse_resnet", "time_to_accuracy"),
    )
}
simulations = benchmark("harness.simulations")
held_out = benchmark("harness.held_out")
#: Programs whose runs need no tuning.
UNTUNED = ("reproduce_paper", "sparse_resnet", "time_to_accuracy")


def call(name: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Call a program in this process."""
    program: ModuleType = PROGRAMS[name]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    return program.main()


@pytest.mark.parametrize(("name", "option"), [("sparse_accuracy", "--seeds"), ("time_to_accuracy", "--jobs")])
def test_number_of_seeds_or_jobs_below_1_exits_with_2(name, option, monkeypatch, capsys):
    number = "0"
    with pytest.raises(SystemExit) as caught:
        call(name, monkeypatch, f"{option}={number}")
    assert caught.value.code == 2
    assert f"argument {option}: {number!r} should be a whole number of 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["reproduce_paper", "time_to_accuracy"])
def test_only_that_matches_no_run_is_refused_and_leaves_the_table(name, tmp_path, monkeypatch):
    (tmp_path / "table.md").write_text("finished\n")
    with pytest.raises(ExpectedError, match="--only nonsense: the name of no run contains this"):
        call(name, monkeypatch, f"--out={tmp_path}", "--only=nonsense")
    assert (tmp_path / "table.md").read_text() == "finished\n"


def test_fastest_device_without_tuning_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ExpectedError, match="none of sync, esync can be reported; run this program with --tune first"):
        call("fastest_device", monkeypatch, f"--out={tmp_path}", "--methods", "sync", "esync")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", UNTUNED)
def test_list_makes_no_folder(name, tmp_path, monkeypatch, capsys):
    assert call(name, monkeypatch, f"--out={tmp_path / 'new'}", "--list") == 0
    assert "core-hours: planned" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "Expecting value"),
        ('{"a": ', "Expecting value"),
        ("[]", "it is not a JSON object"),
        ('{"a": 1}', "a is not a finished run"),
        ('{"a": {"result": {}, "real": []}}', "a is not a finished run"),
    ],
)
@pytest.mark.parametrize("name", UNTUNED[:1])
def test_damaged_file_of_runs_is_named_and_left_alone(name, content, why, tmp_path, monkeypatch):
    runs = tmp_path / "runs.json"
    runs.write_text(content)
    with pytest.raises(ExpectedError) as caught:
        call(name, monkeypatch, f"--out={tmp_path}")
    assert str(caught.value).startswith(f"{runs} is damaged ({why}")
    assert str(caught.value).endswith("; move it away")
    assert runs.read_text() == content


@pytest.mark.parametrize("content", ["", "[]", "{", None])
@pytest.mark.parametrize("damaged", ["json", "real.json"])
def test_damaged_result_of_a_single_run_is_removed(content, damaged, tmp_path):
    runs = PROGRAMS["time_to_accuracy"].runs(1)[:2]
    for run in runs:
        for kind in ("json", "real.json"):
            (tmp_path / f"{run.name}.{kind}").write_text("{}")
    file = tmp_path / f"{runs[0].name}.{damaged}"
    file.unlink()
    if content is not None:
        file.write_text(content)
    simulations.gather(tmp_path, runs)
    assert list(simulations.results(tmp_path)) == [runs[1].name]
    if (content, damaged) != (None, "real.json"):  # without it, the run has not ended yet
        assert [path.name for path in tmp_path.iterdir()] == ["runs.json"]


def test_small_inception_takes_images_of_fashion_mnist_and_has_the_narrow_network_s_weights():
    from esync.models import networks

    names = (PROGRAMS["time_to_accuracy"].SMALLER["inception-v3"], "inception-v3x0.25")
    small, narrow = (networks.build(name, 10, networks.mx.cpu(), seed=0) for name in names)
    shapes = [[p.shape for p in net.collect_params().values()] for net in (small, narrow)]
    assert shapes[0] == shapes[1]
    assert small(networks.mx.nd.zeros((3, 1, 28, 28))).shape == (3, 10)


#: An experiment with one run, which tells its process id.
WAITING = f"""
import sys
from argparse import Namespace
from pathlib import Path
sys.path.insert(0, {str(BENCHMARKS)!r})
from harness import program, simulations
class Run:
    name = "waiting"
    def words(self, options):
        return [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"]
program.run(lambda: simulations.carry_out([Run()], Namespace(out=Path(sys.argv[1]), jobs=1)))
"""


def waits_for(condition, seconds=60.0):
    """Wait until a condition holds, and return its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


@pytest.fixture
def _terminal():
    """Children hear SIGHUP, also where the tests themselves are run by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_program_that_is_ended_leaves_no_simulation_behind(number, tmp_path):
    log = tmp_path / "waiting.log"
    with subprocess.Popen([sys.executable, "-c", WAITING, str(tmp_path)], stderr=subprocess.DEVNULL) as running:
        pid = int(waits_for(lambda: log.exists() and log.read_text().endswith("\n") and log.read_text()))
        running.send_signal(number)
        assert running.wait(60) == (-number if number == signal.SIGKILL else 128 + number)
    assert child.ends(pid, 10)
