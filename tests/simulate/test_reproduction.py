"""benchmarks/reproduce_paper.py: what it would run, that it goes on where it was stopped, and its table."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("reproduce_paper", ROOT / "benchmarks" / "reproduce_paper.py")
reproduce = sys.modules["reproduce_paper"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reproduce)


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
    }


def write(folder, name, *values):
    (folder / f"{name}.json").write_text(json.dumps(outcome(*values)))


def test_every_run_has_files_of_its_own_and_flags_that_the_simulator_knows(monkeypatch):
    from esync.simulate.__main__ import parse_arguments

    monkeypatch.chdir(ROOT)
    runs = reproduce.runs(full=True, parity=True, seeds=5)
    assert len({run.name for run in runs}) == len(runs) == 1 + 6 * 10 + 10
    for run in runs:
        _, *words = run.words(Path("out"), 2.0, 500)
        assert words[:2] == ["-m", "esync.simulate"]
        options, job = parse_arguments(words[2:])
        assert options.file.exists()
        assert job.typed["seed"] == run.seed


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
