"""The programs whose runs are kept in one file: wrong options, damaged files, and signals."""

import importlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from esync.runtime.errors import ExpectedError

from ..support import child

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
PROGRAMS = {
    name: importlib.import_module(name)
    for name in (
        *("data_by_class", "fastest_device", "reproduce_paper"),
        *("sparse_accuracy", "sparse_resnet", "time_to_accuracy"),
    )
}
simulations = importlib.import_module("harness.simulations")
held_out = importlib.import_module("harness.held_out")
sys.path.remove(str(BENCHMARKS))
SEVERAL_AT_A_TIME = ("data_by_class", "fastest_device", "reproduce_paper", "sparse_resnet", "time_to_accuracy")
#: Programs whose runs need no tuning.
UNTUNED = ("reproduce_paper", "sparse_resnet", "time_to_accuracy")


def call(name: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Call a program in this process."""
    program: ModuleType = PROGRAMS[name]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    return program.main()


@pytest.mark.parametrize(
    ("name", "option"),
    [*((name, "--seeds") for name in PROGRAMS), *((name, "--jobs") for name in SEVERAL_AT_A_TIME)],
)
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


def test_factors_that_no_setting_has_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ExpectedError, match="no run has these options"):
        call("time_to_accuracy", monkeypatch, f"--out={tmp_path}", "--factors=3")


def test_fastest_device_without_tuning_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ExpectedError, match="none of sync, esync can be reported; run this program with --tune first"):
        call("fastest_device", monkeypatch, f"--out={tmp_path}", "--methods", "sync", "esync")
    assert not list(tmp_path.iterdir())


def test_fastest_device_with_a_network_of_unknown_cost_names_the_known_ones(monkeypatch, capsys):
    with pytest.raises(SystemExit) as caught:
        call("fastest_device", monkeypatch, "--network=lenet")
    assert caught.value.code == 2
    assert "resnet18-v1x0.25-groupnorm" in capsys.readouterr().err.splitlines()[-1]


def test_time_to_accuracy_evaluates_on_the_same_images_in_all_runs(tmp_path, monkeypatch, capsys):
    program = PROGRAMS["time_to_accuracy"]
    given = program.argparse.Namespace(out=tmp_path)
    assert {word for run in program.runs(1) for word in run.words(given) if "test-images" in word} == {
        "--test-images=2500"
    }
    with pytest.raises(SystemExit):
        call("time_to_accuracy", monkeypatch, "--test-images=10")
    assert "unrecognized arguments: --test-images=10" in capsys.readouterr().err


def test_run_that_a_lower_limit_has_ended_is_carried_out_again(tmp_path, monkeypatch, capsys):
    program = PROGRAMS["time_to_accuracy"]
    runs = [program.TargetRun("alexnet", "esync", factor, 0) for factor in (1, 2, 4)]
    ends = [(200.0, 0.7), (150.0, 0.81), (820.0, 0.7)]  # too soon; at the target; at today's limit
    kept = {
        run.name: {
            "result": {"accuracies": [[1, seconds, accuracy]], "seconds": seconds, "samples": 64, "rounds": 1},
            "real": {"core_seconds": 1.0},
        }
        for run, (seconds, accuracy) in zip(runs, ends, strict=True)
    }
    (tmp_path / "runs.json").write_text(json.dumps(kept))
    monkeypatch.setattr(program, "carry_out", lambda chosen, given: True)
    words = (f"--out={tmp_path}", "--only=alexnet", "--settings=esync", "--seeds=1")
    call("time_to_accuracy", monkeypatch, *words, "--list")
    assert f"–           {runs[0].name}" in capsys.readouterr().out
    call("time_to_accuracy", monkeypatch, *words, "--budget=0.0001")  # over it, so that its result is kept
    assert simulations.results(tmp_path).keys() == {run.name for run in runs}
    call("time_to_accuracy", monkeypatch, *words)
    assert simulations.results(tmp_path).keys() == {run.name for run in runs[1:]}


def test_budget_keeps_the_result_of_a_run_that_is_too_short(tmp_path, monkeypatch, capsys):
    program = PROGRAMS["reproduce_paper"]
    run = next(run for run in program.horizon_runs() if run.algorithm in program.PARTS)
    kept = {run.name: {"result": {"seconds": 60.0, "time_to": {}}, "real": {"core_seconds": 1.0}}}
    (tmp_path / "runs.json").write_text(json.dumps(kept))
    words = ["--horizon", f"--out={tmp_path}", f"--only={run.name}"]
    assert program.main([*words, "--list"]) == 0
    assert f"–           {run.name}" in capsys.readouterr().out
    monkeypatch.setattr(program, "carry_out", lambda *_: True)
    for name in ("draw", "table", "horizon_table"):
        monkeypatch.setattr(program, name, lambda *_: "")
    program.main([*words, "--budget=0.0001"])
    assert simulations.results(tmp_path).keys() == {run.name}
    program.main(words)
    assert not simulations.results(tmp_path)


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
@pytest.mark.parametrize("name", UNTUNED)
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
        assert [each.name for each in tmp_path.iterdir()] == ["runs.json"]


def test_sparse_accuracy_does_not_write_to_a_foreign_file(tmp_path, capsys):
    file = tmp_path / "runs.json"
    file.write_text('{"a": 1}')
    assert PROGRAMS["sparse_accuracy"].main([f"--json={file}", "--list"]) == 1
    assert f"{file} holds runs of another setting" in capsys.readouterr().err


def test_out_that_is_a_file_is_told_in_one_line(tmp_path):
    file = tmp_path / "out"
    file.write_text("")
    ended = child.run(str(BENCHMARKS / "sparse_resnet.py"), f"--out={file}")
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"error: {file}: File exists\n")


def test_images_kept_back_on_a_full_disk_are_told_with_the_file(tmp_path, monkeypatch):
    import resource

    import numpy as np

    class Data:
        train_images, train_labels = np.zeros((1200, 28, 28), np.uint8), np.zeros(1200, np.uint8)

    monkeypatch.setattr(held_out, "load", lambda name: Data)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            held_out.write_held_out(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(tmp_path / "held-out.npz")
    assert not list(tmp_path.iterdir())


#: An experiment with one run, which tells its process id.
WAITING = f"""
import sys
from argparse import Namespace
from pathlib import Path
sys.path.insert(0, {str(BENCHMARKS)!r})
from harness import program, simulations
class Run:
    name = "waiting"
    def words(self, given):
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
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_program_that_is_ended_leaves_no_simulation_behind(number, tmp_path):
    log = tmp_path / "waiting.log"
    with subprocess.Popen([sys.executable, "-c", WAITING, str(tmp_path)], stderr=subprocess.DEVNULL) as running:
        pid = int(waits_for(lambda: log.exists() and log.read_text().endswith("\n") and log.read_text()))
        running.send_signal(number)
        assert running.wait(60) == (-number if number == signal.SIGKILL else 128 + number)
    assert child.ends(pid, 10)


def test_program_under_nohup_outlives_its_terminal(tmp_path):
    log = tmp_path / "waiting.log"
    program = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{WAITING}"
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stderr=subprocess.DEVNULL) as running:
        pid = int(waits_for(lambda: log.exists() and log.read_text().endswith("\n") and log.read_text()))
        running.send_signal(signal.SIGHUP)
        time.sleep(1)
        assert running.poll() is None
        running.terminate()
        assert running.wait(60) == 128 + signal.SIGTERM
    assert child.ends(pid, 10)
