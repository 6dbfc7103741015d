"""The worker program: command lines, environments, and runs of mode local."""

import json
import signal
import socket
from pathlib import Path

import numpy as np
import pytest

from .data import tiny_dataset
from .support import child


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tiny_dataset.write(folder)
    return folder


def small(data_dir: Path, *flags: str) -> list[str]:
    """Flags of a worker with little to do: 40 training samples, lenet."""
    return ["-m", "esync.worker", "-n", "lenet", "-b", "8", "-dd", str(data_dir), *flags]


def local(data_dir: Path, log_dir: Path, *flags: str) -> list[str]:
    return small(data_dir, "-m", "local", "-ld", str(log_dir), *flags)


def rounds(log_dir: Path) -> dict[int, dict]:
    files = (log_dir / "cpu").glob("iter-*.txt")
    return dict(sorted((int(path.stem.split("-")[1]), json.loads(path.read_text())) for path in files))


def test_network_of_a_user_without_statistics_to_estimate_is_told_before_it_trains(data_dir, tmp_path):
    network = Path(__file__).parent / "support/user_networks.py:dense"
    flags = ("-n", str(network), "--reestimate-statistics", "5", "--no-evaluation", "--rounds", "2")
    result = child.run(*local(data_dir, tmp_path / "logs", *flags))
    assert result.returncode == 1
    assert "worker: error: --reestimate-statistics: the network has no batch norm" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "logs").exists()


# --- command lines and environments ---------------------------------------------------------------


@pytest.mark.parametrize("program", ["esync.worker", "esync.server", "esync.scheduler"])
def test_program_with_bad_usage_exits_with_2(program):
    result = child.run("-m", program, "--batch-size", "none")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == (
        f"python -m {program}: error: argument -b/--batch-size: 'none' should be a whole number of 1 or more"
    )


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_worker_program_with_another_role_starts_that_role(role):
    result = child.run("-m", "esync.worker", "--batch-size", "none", DMLC_ROLE=role)
    assert result.returncode == 2
    assert f"python -m esync.{role}: error" in result.stderr


CLUSTER = {
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "9",
    "DMLC_NUM_SERVER": "1",
    "DMLC_NUM_WORKER": "1",
}


@pytest.mark.parametrize("program", ["esync.server", "esync.scheduler"])
def test_program_with_missing_variable_exits_with_1_and_one_sentence(program):
    result = child.run("-m", program, DMLC_PS_ROOT_URI="127.0.0.1")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{program.split('.')[1]}: error: DMLC_PS_ROOT_PORT is not set: it is the ")


@pytest.mark.parametrize(
    ("flags", "environment", "said"),
    [
        (["-m", "sync"], {}, "DMLC_PS_ROOT_URI is not set"),
        (["-m", "dcasgd", "--optimizer", "adam"], CLUSTER, "algorithm 'dcasgd' does SGD on the servers"),
        (["-m", "esync"], CLUSTER, "the state server's address is ''"),
        (["-m", "local", "--optimizer", "magic"], {}, "--optimizer 'magic' is not known to Gluon; known: "),
        (["-m", "local", "--optimizer", "adam", "--momentum", "0.9"], {}, "momentum"),
        (["-m", "local"], {"ESYNC_DEVICE": "gpu99"}, "--gpu 99: this machine and this build of MXNet have"),
    ],
)
def test_worker_with_impossible_settings_exits_with_1_and_one_sentence(data_dir, flags, environment, said):
    result = child.run(*small(data_dir, *flags), **environment)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "error" in line]
    assert line.startswith("worker: error: ")
    assert said in line


def test_worker_with_unknown_role_exits_with_2(data_dir):
    result = child.run(*small(data_dir, "-m", "local"), DMLC_ROLE="boss")
    assert result.returncode == 2
    assert "DMLC_ROLE is 'boss', but should be one of worker, server, scheduler" in result.stderr


def test_worker_with_missing_data_set_names_it(tmp_path):
    result = child.run(*small(tmp_path, "-m", "local"))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("worker: error: ")
    assert str(tmp_path / "fashion-mnist") in line


# --- runs of mode local ---------------------------------------------------------------------------


def test_worker_run_writes_its_logs(data_dir, tmp_path):
    result = child.run(*local(data_dir, tmp_path, "--rounds", "3", "--learning-rate", "0.001"))
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


@pytest.mark.parametrize(("flags", "count"), [(["--epochs", "0.5"], 3), (["--max-time", "1e-9"], 1)])
def test_worker_run_with_epochs_or_max_time_ends_there(data_dir, tmp_path, flags, count):
    """Half an epoch of 40 samples is reached with the third batch of 8."""
    assert child.run(*local(data_dir, tmp_path, *flags, "--quiet", "--no-evaluation")).returncode == 0
    assert list(rounds(tmp_path)) == list(range(1, count + 1))


def test_worker_run_with_a_decaying_rate_ends_with_the_last_factor(data_dir, tmp_path):
    """The iteration that warms up comes before the algorithm knows how long the run is."""
    flags = ["--epochs", "1", "--lr-decay", "0.3:0.5,0.7:0.1", "--learning-rate", "0.001", "--no-evaluation"]
    result = child.run(*local(data_dir, tmp_path, *flags))
    assert result.returncode == 0, result.stderr
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
    result = child.run(*local(tmp_path / "data", tmp_path / "logs", *flags))
    assert (result.returncode, result.stderr) == (0, "")
    assert "reaches the target 1.0: stopping" in result.stdout
    *_, last = rounds(tmp_path / "logs").values()
    assert last["accuracy"] == 1.0


def test_worker_with_diverging_training_exits_with_1(data_dir, tmp_path):
    result = child.run(*local(data_dir, tmp_path, "-l", "1e30", "--rounds", "50", "--no-evaluation"))
    assert result.returncode == 1
    assert result.stderr.startswith("worker: error: the loss is ")
    assert "smaller learning rate" in result.stderr
    assert "Traceback" not in result.stderr


def test_worker_with_unwritable_logs_exits_with_1(data_dir):
    result = child.run(*local(data_dir, Path("/proc/logs"), "--rounds", "2"))
    assert result.returncode == 1
    assert result.stderr.startswith("worker: error: cannot write logs to /proc/logs: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_worker_that_receives_a_signal_ends_the_run(data_dir, tmp_path, number):
    flags = ["--step-time", "0.2"]
    with child.started(
        *local(data_dir, tmp_path, *flags), until=f"worker 0 of 1 on cpu, logs in {tmp_path / 'cpu'}"
    ) as worker:
        while not worker.stdout.readline().startswith("round"):
            assert worker.poll() is None
        worker.send_signal(number)
        _, errors = worker.communicate(timeout=20)
        assert (worker.returncode, errors) == (1, f"worker: ended by {number.name}\n")
    assert 1 in rounds(tmp_path)


# --- the final model ------------------------------------------------------------------------------


def test_worker_writes_lines_and_the_final_model_unless_told_not_to(data_dir, tmp_path):
    flags = ["--rounds", "2", "--no-evaluation"]
    result = child.run(*local(data_dir, tmp_path, *flags))
    folder = tmp_path / "cpu" / "model"
    assert result.stdout.endswith(f"final model in {folder}\n")
    assert {"model.params", "model-symbol.json", "model-0000.params"} <= {path.name for path in folder.iterdir()}
    result = child.run(*local(data_dir, tmp_path, *flags, "--no-export", "--quiet"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert "accuracy" not in rounds(tmp_path)[2]
    assert list((tmp_path / "cpu").glob("earlier-*/model/model.params"))
    assert not folder.exists()


def test_named_run_by_hand_has_the_folder_that_the_log_tools_expect(data_dir, tmp_path):
    result = child.run(*local(data_dir, tmp_path, "--name", "base", "--rounds", "2", "--no-evaluation", "--no-export"))
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "lenet" / "local@base" / socket.gethostname() / "cpu" / "iter-1.txt").exists()
