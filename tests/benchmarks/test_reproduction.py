"""benchmarks/reproduce_paper.py: its runs, how it resumes, and its table."""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ..support.benchmark_programs import ROOT, benchmark

reproduce = benchmark("reproduce_paper")
simulations = benchmark("harness.simulations")
paper_runs = benchmark("harness.paper_runs")


def outcome(reached, final):
    return {
        "throughput": 100.0,
        "efficiency": 0.5,
        "seconds": 10.0,
        "servers": ["s"],
        "traffic": {"s": {"received": 5e7, "sent": 5e7}},
        "devices": [{"computing_ratio": 0.4}, {"computing_ratio": 0.5}],
        "time_to": {"0.8": reached},
        "final_accuracy": final,
        "samples": 625216,
    }


#: What a result says of a device that has neither waited nor exchanged.
DEVICE = {"rank": 0, "host": "cloud1", "device": "gpu0", "step_time": 0.03, "iterations": 6000, "rounds": 6000}
DEVICE |= {"wait": {"mean": 0.0}, "transfer": 0.0}


def write(folder, name, *values, real=None, **extra):
    runs = folder / simulations.RUNS
    entries = json.loads(runs.read_text()) if runs.exists() else {}
    runs.write_text(json.dumps({**entries, name: {"result": outcome(*values) | extra, "real": real or {}}}))


def test_reproduction_runs_have_their_own_files_and_valid_flags(monkeypatch, tmp_path):
    from esync.simulate.__main__ import parse_arguments

    monkeypatch.chdir(ROOT)
    runs = reproduce.runs(full=True, parity=True, seeds=5)
    assert len({run.name for run in runs}) == len(runs) == 1 + 6 * 10 + 10
    runs += [run.continued for run in runs if run.continued]
    assert len({run.name for run in runs}) == len(runs) == 1 + 6 * 14 + 10
    for run in runs:
        if run.after:
            assert run.after in runs
            write(tmp_path, run.after.name, None, 0.9)
        arguments = argparse.Namespace(out=tmp_path, epochs=2.0, most_epochs=30.0, test_images=500)
        _, *words = run.words(arguments)
        assert words[:2] == ["-m", "esync.simulate"]
        options, job = parse_arguments(words[2:])
        assert options.file.exists()
        assert job.typed["seed"] == run.seed
        samples = job.typed.get("epochs", 0) * 60000
        assert (math.ceil(samples) == 625216) == bool(run.after)
        assert (samples == 30 * 60000) == run.longer == (run.name.endswith("-longer"))
        assert job.typed.get("target_accuracy") == (0.8 if run.longer or run.factor > 1 else None)


def test_reproduction_runs_over_the_horizon_last_two_hours_with_valid_flags(monkeypatch, tmp_path):
    from esync.simulate.__main__ import parse_arguments

    monkeypatch.chdir(ROOT)
    runs = reproduce.horizon_runs()
    assert [run.name.removeprefix("resnet18-v1x0.25-") for run in runs[:16]] == [
        *(f"{algorithm}-{data}" for algorithm in ("sync", "async", "dcasgd") for data in ("iid", "niid")),
        *("groupnorm-sync-iid", "groupnorm-sync-niid", "esync-iid", "esync-niid"),
        *("local-iid", "local-iid-x2", "local-iid-x4", "local-iid-x8"),
        *("groupnorm-esync-niid", "groupnorm-esync-iid"),
    ]
    assert len({run.name for run in runs}) == len(runs)
    arguments = reproduce.parse_arguments(["--out", str(tmp_path)])
    for run in runs:
        assert run.continued is None
        _, program, *words = run.words(arguments)
        if in_parts := run.algorithm in ("esync", "local"):
            assert Path(program).name == "in_parts.py"
            assert words.pop(0).startswith("--parts=")
        options, job = parse_arguments(words[0 if in_parts else 1 :])
        assert options.file.exists()
        assert job.typed["network"] == run.network
        end = 600 if run.network == "resnet18-v1" else 7200
        assert (job.typed["max_time"], job.typed["seed"], job.typed.get("epochs")) == (end, run.seed, None)
        rate = job.typed["local_lr" if run.algorithm == "esync" else "learning_rate"]
        assert rate == pytest.approx(0.0005 * run.factor)
        assert (job.logs is False) == (not in_parts and run.seed > 0)
        steps = [worker["simulate"]["step_time"] for worker in yaml.safe_load(options.file.read_text())["workers"]]
        assert steps[0] == min(steps)  # sequential SGD runs on the first device: the fastest one


def test_reproduction_lists_costs_and_leaves_out_the_end_that_is_over_the_budget(tmp_path, monkeypatch, capsys):
    names = []
    monkeypatch.setattr(reproduce.Run, "words", lambda self, *_: names.append(self.name) or [sys.executable, "-c", ""])
    monkeypatch.setattr(reproduce, "planned", lambda run, options: 1800.0)
    monkeypatch.chdir(tmp_path)
    first, second, third, fourth, *_ = [run.name for run in reproduce.horizon_runs()]
    write(tmp_path, first, 1.0, 0.9, real={"simulation": 9999.0, "core_seconds": 3000.0}, accuracies=[[1, 10.0, 0.9]])
    write(tmp_path, third, 1.0, 0.9, real={"preparation": 100.0, "simulation": 500.0}, accuracies=[[1, 10.0, 0.9]])
    words = ["--out", str(tmp_path), "--horizon", "--budget", "1.5"]  # 5400 s = 3000 + 1800 + 600
    assert reproduce.main([*words, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["done", "–", "done", "over", "over"]
    assert [line.rpartition("spent")[2].strip() for line in lines[:4]] == ["3000 s", "–", "600 s", "–"]
    assert lines[-1] == "core-hours: planned 1.5, spent 1.0"
    assert not names
    assert reproduce.main(words) == 0
    assert names == [second]
    assert f"over the budget, left out: {fourth}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--budget", "0"], ["--budget", "nan"], ["--last-share", "0"], ["--last-share", "2"]]
)
def test_reproduction_with_impossible_budget_or_share_exits_with_2(words, capsys):
    with pytest.raises(SystemExit) as caught:
        reproduce.main(words)
    assert caught.value.code == 2
    stderr = capsys.readouterr().err
    assert words[0] in stderr
    assert f"{words[1]}: expected" in stderr


@pytest.mark.parametrize("reached", [None, 300.0])
def test_reproduction_run_below_the_target_is_followed_by_a_longer_one(tmp_path, monkeypatch, capsys, reached):
    stand_in = [sys.executable, "-c", "print('one line')"]
    started_runs = []
    monkeypatch.setattr(reproduce.Run, "words", lambda self, *_: started_runs.append(self) or stand_in)
    monkeypatch.chdir(tmp_path)
    for algorithm, data in (("esync", "iid"), ("async", "niid")):
        write(tmp_path, f"resnet18-v1-{algorithm}-{data}", reached, 0.7)
    write(tmp_path, "resnet18-v1-async-iid", 500.0, 0.9)
    for only in ("18-v1-esync-iid", "18-v1-async"):
        assert reproduce.main(["--out", str(tmp_path), "--only", only, "--list"]) == 0
        assert reproduce.main(["--out", str(tmp_path), "--only", only]) == 0
    longer = [] if reached else ["resnet18-v1-esync-iid-longer"]
    assert [run.name for run in started_runs if run.longer] == longer
    assert ("–           resnet18-v1-esync-iid-longer" in capsys.readouterr().out) == bool(longer)


def test_reproduction_of_sequential_sgd_waits_for_esyncs_number_of_samples(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert reproduce.main(["--out", str(tmp_path), "--parity", "--only", "local-iid-seed0"]) == 1
    assert "needs the number of samples" in capsys.readouterr().out


def leave(folder, name, *values):
    """Leave what a simulation has written."""
    (folder / f"{name}.json").write_text(json.dumps(outcome(*values)))
    (folder / f"{name}.real.json").write_text(json.dumps({"events": 3}))


def test_reproduction_keeps_results_of_an_interrupted_program(tmp_path, monkeypatch):
    first, second = reproduce.Run("resnet18-v1", "sync", "niid"), reproduce.Run("resnet18-v1", "esync", "niid")
    for run, reached in ((first, 2.0), (second, 1.0)):
        leave(tmp_path, run.name, reached, 0.9)
    monkeypatch.setattr(reproduce.Run, "words", lambda self, *_: pytest.fail(f"{self.name} was done again"))
    monkeypatch.chdir(tmp_path)
    assert reproduce.main(["--out", str(tmp_path), "--only", first.name]) == 0
    results = json.loads((tmp_path / "runs.json").read_text())
    assert results == {first.name: {"result": outcome(2.0, 0.9), "real": {"events": 3}}}
    assert [path.name for path in sorted(tmp_path.glob("*.json"))] == [
        f"{second.name}.json",
        f"{second.name}.real.json",
        "runs.json",
    ]
    simulations.gather(tmp_path, [second])
    assert list(json.loads((tmp_path / "runs.json").read_text())) == [second.name, first.name]  # sorted
    assert [path.name for path in tmp_path.glob("*.json")] == ["runs.json"]


def test_reproduction_killed_while_gathering_loses_no_result(tmp_path, monkeypatch):
    first, second = reproduce.Run("resnet18-v1", "sync"), reproduce.Run("resnet18-v1", "esync")
    write(tmp_path, first.name, 2.0, 0.9)
    leave(tmp_path, second.name, 1.0, 0.9)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        simulations.gather(tmp_path, [second])
    assert set(simulations.results(tmp_path)) == {first.name}
    monkeypatch.undo()
    simulations.gather(tmp_path, [second])
    assert set(simulations.results(tmp_path)) == {first.name, second.name}


def test_reproduction_programs_that_gather_at_once_lose_no_result(tmp_path):
    runs = [reproduce.Run("resnet18-v1", "sync", factor=factor) for factor in range(1, 41)]
    for run in runs:
        leave(tmp_path, run.name, 1.0, 0.9)
    program = (
        "import sys; from pathlib import Path\n"
        "from harness.simulations import gather; from reproduce_paper import Run\n"
        "for factor in range(int(sys.argv[2]), 41, 2):\n"
        "    gather(Path(sys.argv[1]), [Run('resnet18-v1', 'sync', factor=factor)])"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), first], cwd=ROOT / "benchmarks")
        for first in ("1", "2")
    ]
    assert [process.wait() for process in both] == [0, 0]
    assert set(simulations.results(tmp_path)) == {run.name for run in runs}


def test_reproduction_of_stored_results_gives_the_stored_tables():
    results = ROOT / "results"
    networks = reproduce.runs(full=False, parity=True, seeds=5)
    tables = reproduce.table(results / "reproduction", networks)
    tables += reproduce.horizon_table(results / "reproduction", reproduce.parse_arguments([]))
    assert tables == (results / "reproduction" / "table.md").read_text()


def test_reproduction_script_with_an_unknown_experiment_names_the_known_ones():
    ended = subprocess.run(
        ["bash", "scripts/reproduce_paper.sh", "table2"], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert ended.returncode == 2
    assert "'table2' is no experiment" in ended.stderr
    assert "horizon table1 alone" in ended.stderr


@pytest.mark.parametrize(
    ("experiment", "first"),
    [
        ("horizon", "resnet18-v1x0.25-sync-iid"),
        ("table1", "resnet18-v1x0.25-esync-x1-seed0"),
        ("by-class", "class-sync-2bit-x0.5"),
        ("dgs", "8 workers"),
        ("dgs-resnet", "DGS-16-workers-6-epochs-seed0"),
    ],
)
def test_reproduction_script_lists_the_runs_of_an_experiment_with_their_costs(experiment, first):
    ended = subprocess.run(
        ["bash", "scripts/reproduce_paper.sh", experiment, "--list"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert first in ended.stdout
    assert "core-hours: planned" in ended.stdout


@pytest.mark.parametrize("words", [["--seeds", "1", "--list"], ["--budget=1"]])
def test_reproduction_script_refuses_to_list_an_experiment_of_minutes_before_any_set_up(words, tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "reproduce_paper.sh", tmp_path / "scripts")  # without setup.sh
    ended = subprocess.run(
        ["bash", "scripts/reproduce_paper.sh", "dgs-speedup", *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ": dgs-speedup takes minutes and has no --list and no --budget\n" in ended.stderr
