"""The search program, with real gradients in the simulator."""

import json

import pytest
import yaml

from esync.sync_switch.__main__ import main

from ..data import tiny_dataset


@pytest.fixture
def cluster(tmp_path):
    description = {
        "scheduler": {"host": "s"},
        "servers": [{"host": "s"}],
        "workers": [{"host": "w", "device": "cpu", "count": 2, "step_time": 0.1}],
        "simulate": {"evaluation_time": 0.5},
        "train": {
            "network": "lenet",
            "data_dir": str(tmp_path / "data"),
            "batch_size": 16,
            "epochs": 4,
            "eval_duration": 50,
        },
    }
    tiny_dataset.write(tmp_path / "data")
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(description))
    return path


def test_search_program_resumes_from_its_trials(tmp_path, cluster, capsys):
    words = ["search", str(cluster), "--out", str(tmp_path / "out"), "--repeats", "1", "--beta", "0.9"]
    assert main([*words, "--settings", "1"]) == 0
    out, err = capsys.readouterr()
    assert err.count("seed 0 …") == 2
    assert "Switch after 50 % of the samples" in out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert 0 < report["bsp"]["accuracy"] < 1
    assert report["tried"][0]["mean_seconds"] > 0
    assert report["core_hours"] > 0
    assert main([*words, "--settings", "1"]) == 0
    assert "seed" not in capsys.readouterr().err  # nothing was run again
    assert main([*words, "--learning-rate", "0.1"]) == 1
    assert "holds trials of another job (flags differ)" in capsys.readouterr().err


def test_search_program_with_failing_trial_says_why(tmp_path, cluster, capsys):
    words = ["search", str(cluster), "--out", str(tmp_path / "out"), "--dataset", "none"]
    assert main(words) == 1
    assert "the trial with BSP share 1 and seed 0 failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--beta", "2"], "--beta 2 should be"), (["--seed", "3"], "--seed is chosen by the search")],
)
def test_search_program_with_mistake_names_it(cluster, words, message, capsys):
    with pytest.raises(SystemExit):
        main(["search", str(cluster), *words])
    assert message in capsys.readouterr().err
