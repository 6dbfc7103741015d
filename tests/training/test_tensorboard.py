"""Event files for TensorBoard: written while training, read back with TensorBoard's own reader."""

import sys
from pathlib import Path

import pytest

import esync
from esync.launch.description import DescriptionError
from esync.loggers import LoggerError
from esync.loggers.tensorboard import EventFile
from esync.reports.compare import main as compare
from esync.simulate.job import SimulationJob
from esync.simulate.job import run as simulate

from ..support.event_files import scalars
from .test_run import dense, train

pytest.importorskip("tensorboardX")
pytest.importorskip("tensorboard")

CLUSTER = """
scheduler: {host: near}
servers: [{host: near}]
workers:
  - {host: near, device: cpu, step_time: 0.1}
  - {host: far, device: cpu, step_time: 0.2}
train: {network: lenet, mode: sync, rounds: 3, batch_size: 8}
"""


def test_scalars_of_a_run_are_read_back(tmp_path: Path) -> None:
    values = iter([0.0, 0.25, 0.5, 0.75, 1.0])  # the first is that of the trial
    run = esync.Run(tmp_path / "logs", tensorboard=tmp_path / "events", evaluate=lambda: next(values), every=4)
    train(dense(), run, rounds=4)
    series = scalars(tmp_path / "events/cpu")
    assert [step for step, _, _ in series["samples_per_second"]] == [1, 2, 3, 4]
    assert [value for _, value, _ in series["local_iterations"]] == [1.0] * 4
    assert {"wait_seconds", "transfer_seconds", "bytes_sent", "bytes_received"} < series.keys()
    assert [(step, value) for step, value, _ in series["accuracy"]] == [(4, 0.25)]
    times = [at for _, _, at in series["samples_per_second"]]
    assert times == sorted(times)
    assert times[0] > 1e9  # seconds since 1970


def test_named_run_has_its_event_files_where_its_logs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py"])
    run = esync.Run(tmp_path / "logs", name="base", tensorboard=tmp_path / "events")
    train(dense(), run, rounds=1)
    assert run.folder is not None
    assert scalars(tmp_path / "events" / run.folder.relative_to(tmp_path / "logs"))


def test_event_files_of_a_finished_run_are_those_that_it_writes_itself(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    typed = {"log_dir": str(tmp_path / "logs"), "tensorboard": str(tmp_path / "live")}
    simulate(SimulationJob(file, "none", typed, quiet=True))
    assert compare([str(tmp_path / "logs"), "--tensorboard", str(tmp_path / "after")]) == 0
    for place in ("near/cpu", "far/cpu"):
        live, after = (scalars(tmp_path / name / "lenet/sync" / place) for name in ("live", "after"))
        assert live.keys() == after.keys()
        for tag in live:
            assert [step for step, _, _ in after[tag]] == [1, 2, 3]
            assert [value for _, value, _ in after[tag]] == pytest.approx(
                [value for _, value, _ in live[tag]], rel=0.01
            )


def test_evaluations_of_finished_runs_are_exported(tmp_path: Path) -> None:
    for name in ("a", "b"):  # of the same network and mode
        run = esync.Run(
            tmp_path / name / "local/here",
            evaluate=lambda: 0.5,
            background=False,
            every=2,
            facts={"network": "net"},
        )
        train(dense(), run, rounds=4)
    assert compare([str(tmp_path / "a"), str(tmp_path / "b"), "--tensorboard", str(tmp_path / "events")]) == 0
    for name in ("local", "local-2"):
        series = scalars(tmp_path / "events/net" / name / "here/cpu")
        assert series["accuracy"][-1][:2] == (4, 0.5)
        assert series["accuracy"][-1][2] > 1e9


@pytest.mark.parametrize("network", ["../../outside", "/outside", "..", ""])
def test_event_files_stay_in_their_folder_whatever_a_log_says(tmp_path: Path, network: str) -> None:
    folder = tmp_path / "logs/lenet/esync"
    run = esync.Run(folder / "here", facts={"network": network, "started": "long ago"})
    train(dense(), run, rounds=2)
    assert compare([str(folder), "--tensorboard", str(tmp_path / "a/b/events")]) == 0
    places = list(tmp_path.rglob("*tfevents*"))
    assert [path.relative_to(tmp_path / "a/b/events").parts[1] for path in places] == ["esync"]


@pytest.mark.parametrize("go_on", [False, True])
def test_event_files_of_an_earlier_run_are_moved_aside_unless_the_run_goes_on(tmp_path: Path, go_on: bool) -> None:
    for step in (1, 2):  # within one second, after which tensorboardX names files
        events = EventFile(tmp_path, go_on=go_on and step > 1)
        events.write(step, 5.0, {"a": 1.0, "unknown": None})
        events.close()
    assert scalars(tmp_path) == {"a": [(step, 1.0, 5.0) for step in ((1, 2) if go_on else (2,))]}
    assert [scalars(aside) for aside in tmp_path.glob("earlier-*")] == [{"a": [(1, 1.0, 5.0)]}] * (not go_on)


def test_missing_package_is_named_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(LoggerError, match=r'pip install "esync\[tensorboard\]"'):
        esync.Run(tmp_path, tensorboard=tmp_path)
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    with pytest.raises(LoggerError, match="tensorboardX"):
        simulate(SimulationJob(file, "none", {"log_dir": str(tmp_path), "tensorboard": str(tmp_path)}, quiet=True))


def test_simulation_without_logs_has_no_event_files(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    with pytest.raises(DescriptionError, match="a simulation without logs"):
        simulate(SimulationJob(file, "none", {"tensorboard": str(tmp_path / "events")}, logs=False, quiet=True))
    file.write_text(CLUSTER.replace("rounds: 3", f"rounds: 3, tensorboard: {tmp_path}/events"))
    simulate(SimulationJob(file, "none", {}, logs=False, quiet=True))
    assert not (tmp_path / "events").exists()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LoggerError, match=r"cannot write event files to .*file"):
        EventFile(tmp_path / "file/cpu")


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = EventFile(tmp_path)
    events._writer._py_recordio_writer._writer = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    with pytest.raises(LoggerError, match="No space left"):
        events.write(1, 5.0, {"a": 1.0})
