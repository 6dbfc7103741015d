"""The worker program: command lines, environments, and runs of mode local."""

import json
import os
import signal
import socket
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from esync.runtime.watchdog import Watchdog

from .data import tiny_dataset
from .support import child


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tiny_dataset.write(folder)
    return folder


def small(data_dir: Path, *flags: str) -> list[str]:
    """Flags of a worker with little to do: 40 training samples, lenet."""
    return ["-n", "lenet", "-b", "8", "-dd", str(data_dir), *flags]


def local(data_dir: Path, log_dir: Path, *flags: str) -> list[str]:
    return small(data_dir, "-m", "local", "-ld", str(log_dir), *flags)


@pytest.fixture
def run(monkeypatch, capsys) -> Callable[..., SimpleNamespace]:
    """Run a program's `main` in this process, without its signal handlers, in the environment of no cluster."""
    monkeypatch.setattr(Watchdog, "handle_signals", lambda *_: None)

    def call(program: str, *words: str, **variables: str) -> SimpleNamespace:
        with patch.dict(os.environ, child.environment(**variables), clear=True):
            try:
                code = import_module(f"esync.{program}").main([*words])
            except SystemExit as end:
                code = end.code
        printed = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=printed.out, stderr=printed.err)

    return call


def rounds(log_dir: Path) -> dict[int, dict]:
    files = (log_dir / "cpu").glob("iter-*.txt")
    return dict(sorted((int(path.stem.split("-")[1]), json.loads(path.read_text())) for path in files))


def test_network_of_a_user_without_statistics_to_estimate_is_told_before_it_trains(run, data_dir, tmp_path):
    network = Path(__file__).parent / "support/user_networks.py:dense"
    flags = ("-n", str(network), "--reestimate-statistics", "5", "--no-evaluation", "--rounds", "2")
    result = run("worker", *local(data_dir, tmp_path / "logs", *flags))
    assert result.returncode == 1
    assert "worker: error: --reestimate-statistics: the network has no batch norm" in result.stderr
    assert not (tmp_path / "logs").exists()


# --- command lines and environments ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "variables"),
    [("server", {}), ("worker", {"DMLC_ROLE": "server"}), ("worker", {"DMLC_ROLE": "scheduler"})],
)
def test_program_with_bad_usage_exits_with_2(run, program, variables):
    result = run(program, "--batch-size", "none", **variables)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == (
        f"python -m esync.{variables.get('DMLC_ROLE', program)}: error: argument -b/--batch-size: 'none' should be a "
        "whole number of 1 or more"
    )


CLUSTER = {
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "9",
    "DMLC_NUM_SERVER": "1",
    "DMLC_NUM_WORKER": "1",
}


@pytest.mark.parametrize("program", ["server", "scheduler"])
def test_program_with_missing_variable_exits_with_1_and_one_sentence(run, program):
    result = run(program, DMLC_PS_ROOT_URI="127.0.0.1")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{program}: error: DMLC_PS_ROOT_PORT is not set: it is the ")


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        (["-m", "sync"], {}, "DMLC_PS_ROOT_URI is not set"),
        (["-m", "dcasgd", "--optimizer", "adam"], CLUSTER, "algorithm 'dcasgd' does SGD on the servers"),
        (["-m", "esync"], CLUSTER, "the state server's address is ''"),
        (["-m", "local", "--optimizer", "magic"], {}, "--optimizer 'magic' is not known to Gluon; known: "),
        (["-m", "local", "--optimizer", "adam", "--momentum", "0.9"], {}, "momentum"),
        (["-m", "local"], {"ESYNC_DEVICE": "gpu99"}, "--gpu 99: this machine and this build of MXNet have"),
        (["-m", "local", "-dd", "/nowhere"], {}, "/nowhere/fashion-mnist"),
        (["-m", "local", "-ld", "/proc/logs", "--rounds", "2"], {}, "cannot write logs to /proc/logs: "),
        (
            ["-m", "local", "-ld", "logs", "-l", "1e30", "--rounds", "50", "--no-evaluation"],
            {},
            "smaller learning rate",
        ),
    ],
)
def test_worker_with_impossible_settings_exits_with_1_and_one_sentence(
    run, data_dir, tmp_path, monkeypatch, flags, environment, message
):
    monkeypatch.chdir(tmp_path)
    result = run("worker", *small(data_dir, *flags), **environment)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "error" in line]
    assert line.startswith("worker: error: ")
    assert message in line


def test_worker_with_unknown_role_exits_with_2(run, data_dir):
    result = run("worker", *small(data_dir, "-m", "local"), DMLC_ROLE="boss")
    assert result.returncode == 2
    assert "DMLC_ROLE is 'boss', but should be one of worker, server, scheduler" in result.stderr


# --- runs of mode local ---------------------------------------------------------------------------


def test_worker_run_writes_its_logs(data_dir, tmp_path):
    result = child.run("-m", "esync.worker", *local(data_dir, tmp_path, "--rounds", "3", "--learning-rate", "0.001"))
    # On a machine that is busy with something else, the last evaluation may be spoken of.
    errors = [line for line in result.stderr.splitlines() if "waiting for the evaluation of the model" not in line]
    assert (result.returncode, errors) == (0, [])
    logged = rounds(tmp_path)
    assert list(logged) == [1, 2, 3]
    for number, entry in logged.items():
        assert entry["num_iters"] == number
        assert entry["num_samples"] == 8
        assert set(entry["time"]) == {"0"}
        assert set(entry["time"]["0"]) == {"get_batch", "forward and backward", "local update"}
    assert 0 <= logged[3]["accuracy"] <= 1  # the final weights are always evaluated
    assert logged[1]["total_time"] <= logged[2]["total_time"] <= logged[3]["total_time"]
    run = json.loads((tmp_path / "cpu" / "run.json").read_text())
    assert (run["finished"], run["rounds"], run["mode"], run["iterations"]) == (True, 3, "local", 3)
    assert (run["learning_rate"], run["learning_rate_multiplies"]) == (0.001, "sum")
    assert "round    3" in result.stdout
    assert result.stdout.splitlines()[-2] == "done after 3 rounds"


def test_worker_run_with_max_time_ends_there(run, data_dir, tmp_path):
    assert run("worker", *local(data_dir, tmp_path, "--max-time", "1e-9", "--quiet", "--no-evaluation")).returncode == 0
    assert list(rounds(tmp_path)) == [1]


def test_worker_run_with_epochs_and_a_decaying_rate_ends_with_the_last_factor(run, data_dir, tmp_path):
    """Half an epoch of 40 samples is reached with the third batch of 8.

    The iteration that warms up comes before the algorithm knows how long the run is.
    """
    flags = ["--epochs", "0.5", "--lr-decay", "0.3:0.5,0.6:0.1", "--learning-rate", "0.001", "--no-evaluation"]
    result = run("worker", *local(data_dir, tmp_path, *flags))
    assert result.returncode == 0, result.stderr
    assert list(rounds(tmp_path)) == [1, 2, 3]
    assert json.loads((tmp_path / "cpu" / "run.json").read_text())["learning_rate_factor"] == 0.1


def test_worker_run_ends_at_the_target_accuracy(tmp_path):
    """All labels are 0, which is learnt soon."""
    labels = {
        name: tiny_dataset.idx_bytes(np.zeros(len(content) - 8, np.uint8))
        for name, content in tiny_dataset.CONTENTS.items()
        if "labels" in name
    }
    tiny_dataset.write(tmp_path / "data", {**tiny_dataset.CONTENTS, **labels})
    flags = ["--target-accuracy", "1", "--step-time", "0.05", "-l", "0.01"]
    result = child.run("-m", "esync.worker", *local(tmp_path / "data", tmp_path / "logs", *flags))
    assert (result.returncode, result.stderr) == (0, "")
    assert "reaches the target 1.0: stopping" in result.stdout
    *_, last = rounds(tmp_path / "logs").values()
    assert last["accuracy"] == 1.0


def test_worker_that_receives_a_signal_ends_the_run(data_dir, tmp_path):
    words = ("-m", "esync.worker", *local(data_dir, tmp_path, "--step-time", "0.2"))
    with child.started(*words, until=f"worker 0 of 1 on cpu, logs in {tmp_path / 'cpu'}") as worker:
        while not worker.stdout.readline().startswith("round"):
            assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        _, errors = worker.communicate(timeout=20)
        assert (worker.returncode, errors) == (1, "worker: ended by SIGTERM\n")
    assert 1 in rounds(tmp_path)


# --- the final model ------------------------------------------------------------------------------


def test_worker_writes_lines_and_the_final_model_unless_told_not_to(run, data_dir, tmp_path):
    flags = ["--name", "base", "--rounds", "2", "--no-evaluation"]
    result = run("worker", *local(data_dir, tmp_path, *flags))
    device = tmp_path / "lenet" / "local@base" / socket.gethostname() / "cpu"  # where the log tools expect a named run
    assert result.stdout.endswith(f"final model in {device / 'model'}\n")
    assert {"model.params", "model-symbol.json", "model-0000.params"} <= {*os.listdir(device / "model")}
    result = run("worker", *local(data_dir, tmp_path, *flags, "--no-export", "--quiet"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert "accuracy" not in rounds(device.parent)[2]
    assert list(device.glob("earlier-*/model/model.params"))
    assert not (device / "model").exists()
