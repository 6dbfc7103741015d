"""benchmarks/in_parts.py: a simulation in parts, and its result as that of one."""

import json
import subprocess
from typing import Any

import pytest

from esync.data import find_data_dir
from esync.runtime.errors import ExpectedError
from esync.simulate.__main__ import main as simulate

from ..support import child
from ..support.benchmark_programs import ROOT, benchmark

in_parts = benchmark("in_parts")

FLAGS = ["--mode=sync", "--network=mlp", "--eval-duration=2", "--test-images=200", "--quiet"]


def arguments() -> list[str]:
    return [str(ROOT / "clusters" / "paper-mlp.yaml"), *FLAGS, f"--data-dir={find_data_dir(None, 'fashion-mnist')}"]


def test_simulation_in_parts_has_the_result_of_one_that_is_as_long(tmp_path):
    in_parts.carry_out(arguments(), 2, 130.0, 3, tmp_path / "parts.json")
    assert simulate([*arguments(), "--no-logs", "--max-time=130", "--seed=3", f"--json={tmp_path / 'whole.json'}"]) == 0
    parts, complete = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("parts", "whole"))
    assert parts.keys() == complete.keys()
    assert parts["devices"][0].keys() == complete["devices"][0].keys()
    for key in ("rounds", "samples", "seconds", "throughput", "efficiency"):
        assert parts[key] == pytest.approx(complete[key], rel=0.06), key
    host = complete["servers"][0]
    assert parts["traffic"][host]["received"] == pytest.approx(complete["traffic"][host]["received"], rel=0.06)
    assert parts["devices"][2]["computing_ratio"] == pytest.approx(complete["devices"][2]["computing_ratio"], rel=0.06)
    rounds, times, accuracies = zip(*parts["accuracies"], strict=True)
    assert list(rounds) == sorted(rounds)
    assert list(times) == sorted(times)
    assert times[-1] > 65
    assert accuracies[-1] == parts["final_accuracy"]
    assert accuracies[-1] > accuracies[0]  # the second part has gone on with the model of the first
    recalls = list(parts["final_parts"].values())
    assert sum(recalls) / len(recalls) == pytest.approx(accuracies[-1], abs=0.03)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "parts.json",
        "parts.real.json",
        "whole.json",
        "whole.real.json",
    ]
    real = json.loads((tmp_path / "parts.real.json").read_text())
    assert real["core_seconds"] > 0


def test_simulation_in_parts_goes_on_with_the_part_that_is_missing(tmp_path, monkeypatch):
    commands: list[list[str]] = []

    def interrupted(command: list[str], **_: Any) -> None:
        if commands:
            raise KeyboardInterrupt
        commands.append(command)
        subprocess.check_call(command)

    monkeypatch.setattr(in_parts.subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_parts.carry_out(arguments(), 2, 60.0, 0, tmp_path / "parts.json")
    first = (tmp_path / "parts.part-0.params").read_bytes()
    assert not (tmp_path / "parts.json").exists()
    commands.clear()
    with pytest.raises(ExpectedError, match="are of another simulation"):
        in_parts.carry_out([*arguments(), "--learning-rate=0.5"], 2, 60.0, 0, tmp_path / "parts.json")
    assert not commands
    in_parts.carry_out(arguments(), 2, 60.0, 0, tmp_path / "parts.json")
    assert [word for word in commands[0] if word.startswith(("--initial-model", "--seed"))] == [
        f"--initial-model={tmp_path / 'parts.part-0.params'}",
        "--seed=1",
    ]
    assert first
    assert (tmp_path / "parts.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--parts=0"], "argument --parts: '0' should be"), (["--parts=2", "--bogus"], "unrecognized arguments: --bogus")],
)
def test_wrong_flags_are_told_without_a_traceback(tmp_path, words, message):
    program = [str(ROOT / "benchmarks" / "in_parts.py"), "--max-time=60", f"--json={tmp_path / 'parts.json'}"]
    result = child.run(*program, *arguments(), *words)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
