"""benchmarks/reproduce_paper.py: what it would run, that it goes on where it was stopped, and its table."""

import argparse
import importlib
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..reports.log_trees import esync_round, write_round

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
reproduce = importlib.import_module("reproduce_paper")
beyond = importlib.import_module("beyond_paper")
simulations = importlib.import_module("harness.simulations")
sys.path.remove(str(ROOT / "benchmarks"))


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


def write(folder, name, *values):
    runs = folder / simulations.RUNS
    known = json.loads(runs.read_text()) if runs.exists() else {}
    runs.write_text(json.dumps({**known, name: {"result": outcome(*values), "real": {}}}))


def test_every_run_has_files_of_its_own_and_flags_that_the_simulator_knows(monkeypatch, tmp_path):
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
        given = argparse.Namespace(out=tmp_path, epochs=2.0, most_epochs=30.0, test_images=500)
        _, *words = run.words(given)
        assert words[:2] == ["-m", "esync.simulate"]
        options, job = parse_arguments(words[2:])
        assert options.file.exists()
        assert job.typed["seed"] == run.seed
        samples = job.typed.get("epochs", 0) * 60000
        assert (math.ceil(samples) == 625216) == bool(run.after)
        assert (samples == 30 * 60000) == run.longer == (run.name.endswith("-longer"))
        assert job.typed.get("target_accuracy") == (0.8 if run.longer or run.factor > 1 else None)


@pytest.mark.parametrize("reached", [None, 300.0])
def test_a_run_that_is_not_at_the_target_is_followed_by_a_longer_one(tmp_path, monkeypatch, capsys, reached):
    stand_in = [sys.executable, "-c", "print('one line')"]
    begun = []
    monkeypatch.setattr(reproduce.Run, "words", lambda self, *_: begun.append(self) or stand_in)
    monkeypatch.chdir(tmp_path)
    for algorithm, data in (("esync", "iid"), ("async", "niid")):
        write(tmp_path, f"resnet18-v1-{algorithm}-{data}", reached, 0.7)
    write(tmp_path, "resnet18-v1-async-iid", 500.0, 0.9)
    for only in ("18-v1-esync-iid", "18-v1-async"):
        assert reproduce.main(["--out", str(tmp_path), "--only", only, "--list"]) == 0
        assert reproduce.main(["--out", str(tmp_path), "--only", only]) == 0
    longer = [] if reached else ["resnet18-v1-esync-iid-longer"]
    assert [run.name for run in begun if run.longer] == longer
    assert ("–     resnet18-v1-esync-iid-longer" in capsys.readouterr().out) == bool(longer)


def test_sequential_sgd_waits_for_the_number_of_samples_that_esync_had(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert reproduce.main(["--out", str(tmp_path), "--parity", "--only", "local-iid-seed0"]) == 1
    assert "needs the number of samples" in capsys.readouterr().out


def test_the_figures_come_from_the_summaries_and_need_no_round_files(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    write_round(tmp_path / "logs" / "lenet" / "esync" / "cloud1" / "cpu", 1, esync_round(1, 3.0))
    reproduce.draw(tmp_path, ["lenet"])
    assert (tmp_path / "lenet" / "throughput.png").exists()
    for each in (tmp_path / "lenet").iterdir():
        each.unlink()
    shutil.rmtree(tmp_path / "logs")
    reproduce.draw(tmp_path, ["lenet"])
    assert (tmp_path / "lenet" / "throughput.png").exists()


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch, capsys):
    first, second = reproduce.Run("resnet18-v1", "dcasgd"), reproduce.Run("mobilenet-v1", "esync", "niid")
    write(tmp_path, first.name, 1.0, 0.9)
    begun = []
    stand_in = [sys.executable, "-c", "print('one line')"]
    monkeypatch.setattr(reproduce.Run, "words", lambda self, *_: begun.append(self) or stand_in)
    monkeypatch.chdir(tmp_path)
    assert reproduce.main(["--out", str(tmp_path), "--only", second.name]) == 0
    assert [run.name for run in begun] == [second.name]
    assert "1 of 1 done" in capsys.readouterr().out
    assert reproduce.main(["--out", str(tmp_path), "--only", first.name]) == 0
    assert len(begun) == 1


def leave(folder, name, *values):
    """Leave what a simulation has written."""
    (folder / f"{name}.json").write_text(json.dumps(outcome(*values)))
    (folder / f"{name}.real.json").write_text(json.dumps({"events": 3}))


def test_what_an_interrupted_program_has_left_is_kept_and_not_done_again(tmp_path, monkeypatch):
    first, second = reproduce.Run("resnet18-v1", "sync", "niid"), reproduce.Run("resnet18-v1", "esync", "niid")
    for run, reached in ((first, 2.0), (second, 1.0)):
        leave(tmp_path, run.name, reached, 0.9)
    monkeypatch.setattr(reproduce.Run, "words", lambda self, *_: pytest.fail(f"{self.name} was done again"))
    monkeypatch.chdir(tmp_path)
    assert reproduce.main(["--out", str(tmp_path), "--only", first.name]) == 0
    kept = json.loads((tmp_path / "runs.json").read_text())
    assert kept == {first.name: {"result": outcome(2.0, 0.9), "real": {"events": 3}}}
    assert [path.name for path in sorted(tmp_path.glob("*.json"))] == [
        f"{second.name}.json",
        f"{second.name}.real.json",
        "runs.json",
    ]
    simulations.gather(tmp_path, [second])
    assert list(json.loads((tmp_path / "runs.json").read_text())) == [second.name, first.name]  # sorted
    assert [path.name for path in tmp_path.glob("*.json")] == ["runs.json"]


def test_a_result_whose_writer_was_killed_halfway_is_not_counted(tmp_path):
    run = reproduce.Run("resnet18-v1", "sync")
    leave(tmp_path, run.name, 2.0, 0.9)
    (tmp_path / f"{run.name}.real.json").unlink()
    simulations.gather(tmp_path, [run])
    assert simulations.results(tmp_path) == {}


def test_a_kill_while_the_results_are_written_leaves_the_old_ones_and_the_new_file(tmp_path, monkeypatch):
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


def test_programs_that_gather_at_the_same_time_lose_nothing(tmp_path):
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


def test_accuracies_before_and_after_are_drawn(tmp_path):
    run = reproduce.Run("resnet18-v1", "async")
    for folder, accuracies in (("before", [[1, 60.0, 0.5]]), ("after", [[1, 60.0, 0.6], [2, 120.0, 0.7]])):
        (tmp_path / folder).mkdir()
        result = {"result": {"accuracies": accuracies}}
        (tmp_path / folder / "runs.json").write_text(json.dumps({run.name: result}))
    words = ["--before", str(tmp_path / "before"), "--out", str(tmp_path / "after"), "--figure"]
    assert reproduce.main([*words, str(tmp_path / "drawn.png")]) == 0
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="none of the chosen runs"):
        reproduce.main([*words, str(tmp_path / "drawn.png"), "--only", "mobilenet"])


def test_the_kept_results_give_the_kept_tables():
    results = ROOT / "results"
    networks = reproduce.runs(full=False, parity=True, seeds=5)
    assert reproduce.table(results / "reproduction", networks) == (results / "reproduction" / "table.md").read_text()
    for name, seeds in (("beyond-mlp", 3), ("beyond-resnet18", 3)):
        assert beyond.compared(results / name, beyond.VARIANTS, seeds) == (results / name / "table.md").read_text()


def test_the_table(tmp_path):
    write(tmp_path, "resnet18-v1-esync-iid", 100.0, 0.91)
    write(tmp_path, "resnet18-v1-sync-iid", 900.0, 0.85)
    write(tmp_path, "resnet18-v1-sync-iid-x2", 500.0, 0.86)
    for seed, (esync, local) in enumerate([(0.90, 0.89), (0.92, 0.90), (0.91, 0.90)]):
        write(tmp_path, f"resnet18-v1-esync-iid-seed{seed}", None, esync)
        write(tmp_path, f"resnet18-v1-local-iid-seed{seed}", None, local)
    text = reproduce.table(tmp_path, reproduce.runs(full=False, parity=True, seeds=5))
    assert "| resnet18-v1 | 9.0 | 5.0 (×2) | 7 | 0.910 | 0.926 |" in text
    assert "| ESync | 3 | 0.9100 | 0.0100 |" in text
    assert "Difference +0.0133 ± 0.0143" in text


@pytest.mark.parametrize("reached", [None, 300.0])
def test_a_baseline_that_does_not_get_there_has_no_speedup(tmp_path, reached):
    write(tmp_path, "resnet18-v1-esync-iid", 100.0, 0.91)
    write(tmp_path, "resnet18-v1-sync-iid", reached, 0.7)
    text = reproduce.table(tmp_path, reproduce.runs(full=False, parity=False, seeds=5))
    assert ("not reached by SSGD" in text) == (reached is None)


def test_a_longer_run_gives_the_time_that_the_shorter_one_has_not(tmp_path):
    write(tmp_path, "mobilenet-v1-esync-iid", None, 0.1)
    write(tmp_path, "mobilenet-v1-esync-iid-longer", 150.0, 0.81)
    write(tmp_path, "mobilenet-v1-sync-iid", 300.0, 0.83)
    text = reproduce.table(tmp_path, reproduce.runs(full=False, parity=False, seeds=5))
    assert "| mobilenet-v1 | 2.0 | 2.0 (×1) | 2 | 0.810 | 0.905 |" in text
