"""The same job with several seeds: `launch --repeat` and `simulate --repeat`."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import description, write

from esync.launch import repeat
from esync.launch.command import main as launch_main
from esync.launch.description import DescriptionError
from esync.launch.repeat import RunEnd, repetitions, run_all
from esync.runtime.errors import ExpectedError
from esync.simulate.__main__ import main as simulate
from tests.support.json_files import read_json


def test_each_run_has_a_seed_a_name_and_checkpoints_of_its_own():
    runs = repetitions(2, {"seed": 4, "checkpoint_dir": "kept"}, {"name": "base"})
    assert [(run.seed, run.name, run.typed["checkpoint_dir"]) for run in runs] == [
        (4, "base-seed4", "kept/base-seed4"), (5, "base-seed5", "kept/base-seed5"),
    ]  # fmt: skip
    assert [run.typed for run in repetitions(2, {"seed": 4}, {"seed": 0})] == [{"name": "seed0"}, {"name": "seed1"}]
    with pytest.raises(DescriptionError, match=r"--name: .* cannot name a run"):
        repetitions(1, {}, {"name": "x" * 60})


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What `run_all` has said, and the folders that it has compared."""
    record: dict[str, list[Any]] = {"say": [], "error": [], "compared": []}
    monkeypatch.setattr(repeat, "compare_folders", lambda folders: record["compared"].extend(folders))
    monkeypatch.setattr(repeat, "comparison_text", lambda comparison, width: "the table")
    return record


def outcome(calls: dict[str, list[Any]], *ends: RunEnd | Exception) -> int:
    remaining = list(ends)

    def run(repetition: Any) -> RunEnd:
        end = remaining.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    runs = repetitions(len(ends), {}, {})
    return run_all(runs, run, calls["say"].append, calls["error"].append, lambda comparison: None)


def test_a_run_that_fails_is_named_and_the_others_go_on(calls, capsys):
    ends = (RunEnd(0, Path("a")), RunEnd(1, Path("b")), ExpectedError("no host"), RunEnd(0, Path("d")))
    assert outcome(calls, *ends) == 1
    assert calls["compared"] == [Path("a"), Path("d")]
    assert calls["error"] == ["no host", "2 of 4 runs failed: seed1, seed2"]
    assert calls["say"][-1] == "run 4 of 4: seed3, seed 3"
    assert "the table" in capsys.readouterr().out


def test_table_is_printed_where_the_comparison_cannot_be_written(calls, capsys):
    def full(comparison: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run_all(repetitions(1, {}, {}), lambda repetition: RunEnd(0, Path("a")), print, print, full)
    assert "the table" in capsys.readouterr().out


def test_a_signal_ends_all_runs(calls):
    assert outcome(calls, RunEnd(0, Path("a")), RunEnd(1, interrupted=True), RunEnd(0, Path("c"))) == 1
    assert calls["error"] == ["1 of 3 runs failed: seed1; 1 more have not begun"]
    assert len(calls["say"]) == 2


def test_a_mistake_in_the_description_is_told_once(calls):
    with pytest.raises(DescriptionError, match="wrong"):
        outcome(calls, DescriptionError("wrong"), RunEnd(0))
    assert len(calls["say"]) == 1


def test_program_is_told_its_seed(tmp_path, capsys):
    file = write(tmp_path / "cluster.yaml", {**description([0.1]), "train": {}})
    words = [str(file), "--dry-run", "--repeat", "2", "--name", "base", "--", "python", "train.py", "--seed={seed}"]
    assert launch_main(words) == 0
    captured = capsys.readouterr()
    for seed in (0, 1):
        assert f"train.py --seed={seed}" in captured.out
        assert f"ESYNC_SEED={seed}" in captured.out
        assert f"program@base-seed{seed}" in captured.out
    assert "write {seed}" not in captured.err
    assert launch_main([*words[:-1], "--data"]) == 0
    assert "write {seed} among its words" in capsys.readouterr().err


def test_simulations_are_repeated_and_compared(tmp_path, capsys):
    train = {"network": "lenet", "mode": "sync", "batch_size": 8, "rounds": 3, "log_dir": str(tmp_path / "logs")}
    file = write(tmp_path / "cluster.yaml", {**description([0.1, 0.2]), "train": train})
    words = [str(file), "--numerics=none", "--quiet", "--repeat=2", "--name=base"]
    assert simulate([*words, f"--json={tmp_path}/all.json"]) == 0
    folders = sorted(path.name for path in (tmp_path / "logs/lenet").iterdir())
    assert folders == ["sync@base-seed0", "sync@base-seed1"]
    captured = capsys.readouterr()
    assert "| SSGD, base | 2 |" in captured.out
    assert "simulate: run 2 of 2: base-seed1, seed 1" in captured.err
    assert len(read_json(tmp_path / "all.json")["runs"]) == 2
    assert simulate([*words, "--sweep=epsilon=1,2"]) == 2
    assert "--repeat contradicts --sweep: sweep seed=0,1,2 instead" in capsys.readouterr().err


@pytest.mark.timeout(300)
def test_real_job_with_two_seeds(tmp_path, data_dir, launch):
    flags = {"mode": "local", "learning_rate": 0.001, "rounds": 4, "no_evaluation": True, "data_dir": str(data_dir)}
    words = ("--repeat", "2", "--seed", "3", "--name", "base", "--json", "job.json")
    job = launch(description([0.1], **flags), *words)
    job.finish()
    folder = tmp_path / "logs/lenet"
    assert sorted(path.name for path in folder.iterdir()) == ["local@base-seed3", "local@base-seed4"]
    for seed in (3, 4):
        run = read_json(folder / f"local@base-seed{seed}/left/cpu/run.json")
        assert (run["seed"], run["rounds"]) == (seed, 4)
        assert read_json(tmp_path / f"job-base-seed{seed}.json")["done"]
    # On a busy machine a run whose steps overrun their times is invalid, and left out of the mean.
    assert "| Standalone, base |" in job.output, job.output
    assert [row["seed"] for row in read_json(tmp_path / "job.json")["runs"]] == [3, 4]


@pytest.mark.timeout(300)
def test_ctrl_c_ends_all_runs_and_leaves_nothing(tmp_path, launch):
    (tmp_path / "train.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(300)\n")
    content = {**description([0.1]), "train": {}}
    job = launch(content, "--repeat", "2", "--", sys.executable, "train.py")
    log = tmp_path / "logs/train/program@seed0/processes/worker-0.log"
    job.until(lambda: log.exists() and "here" in log.read_text(), 120)
    os.kill(job.process.pid, signal.SIGINT)
    job.finish(1)
    assert "1 of 2 runs failed: seed0; 1 more have not begun" in job.output
    assert not (tmp_path / "logs/train/program@seed1").exists()
