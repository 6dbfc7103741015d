"""Loggers of a run: what they get, and what happens if they fail, hang or fall behind."""

import json
import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import esync
from esync import config
from esync.launch.description import DescriptionError
from esync.launch.flags import FlagError, parse
from esync.loggers import BackgroundLogger, LoggedRun, Logger, LoggerError, MLflowLogger, attach
from esync.loggers.mlflow import _name
from esync.simulate.job import SimulationJob
from esync.simulate.job import run as simulate
from esync.training.run_folder import names_of

from .test_run import dense, facts, train

RUN = LoggedRun("lenet/esync@a-seed1", "lenet/esync@a", {})


class Recorder(Logger):
    """Keeps what it gets."""

    name = "recorder"

    def __init__(self, reference: Any = "number 7") -> None:
        self.calls = list[tuple[Any, ...]]()
        self.reference = reference
        self.threads = set[threading.Thread]()

    def begin(self, run: LoggedRun) -> Any:
        self.run = run
        return self.reference

    def write(self, step, wall_time, scalars) -> None:
        self.threads.add(threading.current_thread())
        self.calls.append(("write", step, dict(scalars)))

    def add_files(self, name, paths) -> None:
        self.calls.append(("files", name, [path.name for path in paths]))

    def close(self, error: str = "") -> None:
        self.calls.append(("close", error))


def test_logger_gets_rounds_evaluations_and_the_final_model(tmp_path: Path) -> None:
    values, recorder, net = iter([0.0, 0.25, 0.5]), Recorder(), dense()
    run = esync.Run(tmp_path / "logs", evaluate=lambda: next(values), every=2, loggers=[recorder], net=net)
    train(net, run, rounds=2)
    rounds = [call for call in recorder.calls if call[0] == "write" and "samples_per_second" in call[2]]
    assert [step for _, step, _ in rounds] == [1, 2]
    assert [call for call in recorder.calls if call[0] == "write" and "accuracy" in call[2]] == [
        ("write", 2, {"accuracy": 0.25})
    ]
    assert recorder.calls[-2:] == [("files", "model", ["model"]), ("close", "")]
    assert threading.current_thread() not in recorder.threads
    assert recorder.run.facts["mode"] == "local"
    assert run.folder is not None
    assert facts(run.folder)["loggers"] == {"recorder": "number 7"}


def test_logger_is_told_why_a_run_has_failed(tmp_path: Path) -> None:
    recorder = Recorder()

    class BrokenError(RuntimeError):
        pass

    def hook(*_: Any) -> None:
        raise BrokenError("no more")

    net = dense()
    net.register_forward_hook(hook)
    with pytest.raises(BrokenError):
        train(net, esync.Run(tmp_path, loggers=[recorder]), rounds=2)
    assert recorder.calls == [("close", "no more")]


def test_logger_that_fails_ends_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Recorder):
        def write(self, step, wall_time, scalars) -> None:
            super().write(step, wall_time, scalars)
            raise ConnectionError("the server\nis gone")

    failing, other = Failing(), Recorder()
    other.name = "other"
    train(dense(), esync.Run(tmp_path, loggers=[failing, other]), rounds=3)
    assert len(failing.calls) == 1
    assert len([call for call in other.calls if call[0] == "write"]) == 3
    warnings = [record.getMessage() for record in caplog.records if "recorder" in record.getMessage()]
    assert warnings == ["recorder has failed, and the run goes on without it: the server is gone"]


def test_two_loggers_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two of them have the same name: recorder, recorder"):
        esync.Run(tmp_path, loggers=[Recorder(), Recorder()])


def test_logger_that_cannot_begin_ends_the_run_before_its_first_round(tmp_path: Path) -> None:
    class Refusing(Recorder):
        def begin(self, run: LoggedRun) -> Any:
            raise LoggerError("no such project")

    with pytest.raises(LoggerError, match="no such project"):
        train(dense(), esync.Run(tmp_path, loggers=[Refusing()]), rounds=2)
    assert not list(tmp_path.rglob("iter-*.txt"))


def test_logger_that_hangs_is_left_after_its_time(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(config, "LOGGER_TIMEOUT", 0.3)
    go_on = threading.Event()

    class Hanging(Recorder):
        def begin(self, run: LoggedRun) -> Any:
            return go_on.wait(30)

    with pytest.raises(LoggerError, match=r"recorder has not begun to log the run within 0\.3 s"):
        BackgroundLogger(Hanging()).begin(RUN)

    class Slow(Recorder):
        def write(self, step, wall_time, scalars) -> None:
            go_on.wait(30)

    slow = BackgroundLogger(Slow())
    slow.begin(RUN)
    slow.write(1, 0.0, {})
    slow.close()
    assert "recorder has not taken the rest of the run within 0.3 s" in caplog.text
    go_on.set()


def test_rounds_that_a_slow_logger_lacks_are_told_once(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(config, "LOGGER_BACKLOG", 2)
    entered, go_on, recorder = threading.Event(), threading.Event(), Recorder()
    original = recorder.write

    def write(step, wall_time, scalars) -> None:
        entered.set()
        go_on.wait(30)
        original(step, wall_time, scalars)

    recorder.write = write  # type: ignore[method-assign]
    logger = BackgroundLogger(recorder)
    logger.begin(RUN)
    for step in range(1, 20):
        logger.write(step, 0.0, {"a": 1.0})
        assert entered.wait(30)
    go_on.set()
    logger.close()
    assert [call[1] for call in recorder.calls if call[0] == "write"] == [1, 2, 3]
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "recorder does not keep up, and lacks some rounds, the first of them round 4"
    ]


def test_run_that_is_resumed_goes_on_with_its_log(tmp_path: Path) -> None:
    for rounds, resumed in ((2, None), (4, "number 7")):
        recorder = Recorder()
        checkpoints = esync.Checkpoints(tmp_path / "kept", every=1, resume=True)
        train(dense(), esync.Run(tmp_path / "logs", loggers=[recorder], checkpoints=checkpoints), rounds=rounds)
        assert recorder.run.resumed == resumed
        assert [call[1] for call in recorder.calls if call[0] == "write"] == [rounds - 1, rounds]


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("logs/lenet/esync/cloud1/cpu", ("esync", "esync")),
        ("logs/lenet/esync-niid@base-seed12/cloud1/gpu0", ("esync-niid@base-seed12", "esync-niid@base")),
        ("logs/lenet/esync@seed1/cloud1/gpu0", ("esync@seed1", "esync")),
        ("elsewhere/my/folder/cpu", ("esync", "esync")),
    ],
)
def test_runs_of_a_repetition_have_one_group(folder: str, names: tuple[str, str]) -> None:
    assert names_of(Path(folder), "esync") == names


def test_missing_package_is_named_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setenv(f"ESYNC_{name.upper()}", "x")
        with pytest.raises(LoggerError, match=rf'pip install "esync\[{name}\]"'):
            esync.Run(tmp_path)
        monkeypatch.delenv(f"ESYNC_{name.upper()}")
    assert attach({"mlflow": {"uri": "http://x", "id": "1"}}, "report", [tmp_path / "a.html"]) == [
        'mlflow lacks a.html: MLflow needs mlflow-skinny, which is not installed: pip install "esync[mlflow]"'
    ]


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("http://me:secret@10.1.1.34:5000", "the logs would show the password in the URI"),
        ("http://[x", r"MLflow: 'http://\[x' is no URI"),
    ],
)
def test_uri_of_mlflow_that_is_invalid_or_has_a_password_is_refused(monkeypatch, uri: str, message: str) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", json)
    with pytest.raises(LoggerError, match=message):
        MLflowLogger(uri)


@pytest.mark.parametrize("flag", ["--wandb", "--mlflow"])
def test_empty_name_of_a_logger_is_refused(flag: str) -> None:
    with pytest.raises(FlagError, match=f"{flag}: it is empty; leave the flag out for none"):
        parse([flag, ""])


def test_simulation_is_not_logged_on_the_network(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "scheduler: {host: a}\nservers: [{host: a}]\nworkers:\n  - {host: a, device: cpu, step_time: 0.1}\n"
        "  - {host: a, device: cpu, step_time: 0.2}\ntrain: {network: lenet, mode: sync, rounds: 2}\n"
    )
    with pytest.raises(DescriptionError, match="--wandb: simulations are logged with --tensorboard only"):
        simulate(SimulationJob(file, "none", {"wandb": "p", "log_dir": str(tmp_path)}, quiet=True))


def test_names_are_those_that_mlflow_takes():
    assert _name("recall/café (x)") == "recall/café _x_"
    assert _name("a-b.c d:e/f_1") == "a-b.c d:e/f_1"


class StandInMlflow:
    """What the package mlflow offers to `MLflowLogger`, with runs in memory: id → status."""

    class MlflowException(Exception):  # noqa: N818  the package's name
        error_code = "RESOURCE_DOES_NOT_EXIST"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statuses = dict[str, str]()
        self.refusal: Exception | None = None
        self.metrics = list[tuple[str, float, int]]()
        client = SimpleNamespace(
            get_experiment_by_name=lambda name: SimpleNamespace(experiment_id="0"),
            create_run=self.create_run,
            log_batch=self.log_batch,
            update_run=self.update_run,
            set_terminated=self.statuses.__setitem__,
        )
        modules = {
            "mlflow": SimpleNamespace(MlflowClient=lambda tracking_uri: client),
            "mlflow.entities": SimpleNamespace(
                Param=lambda key, value: (key, value), Metric=lambda key, value, at, step: (key, value, step)
            ),
            "mlflow.exceptions": SimpleNamespace(MlflowException=self.MlflowException),
            "requests": SimpleNamespace(RequestException=ConnectionError),
        }
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)

    def create_run(self, experiment: str, **_: Any) -> Any:
        self.statuses[f"new-{len(self.statuses)}"] = "RUNNING"
        return SimpleNamespace(info=SimpleNamespace(run_id=list(self.statuses)[-1]))

    def log_batch(
        self, number: str, params: Sequence[tuple[str, str]] = (), metrics: Sequence[tuple[str, float, int]] = ()
    ) -> None:
        self.parameters = params
        self.metrics += metrics
        if self.refusal is not None:
            raise self.refusal

    def update_run(self, number: str, status: str) -> None:
        if number not in self.statuses:
            raise self.MlflowException(f"Run {number} not found")
        self.statuses[number] = status


def test_mlflow_run_that_cannot_begin_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    package = StandInMlflow(monkeypatch)
    package.refusal = ConnectionError("the database is full")
    with pytest.raises(LoggerError, match="MLflow at http://x: the database is full"):
        MLflowLogger("http://x").begin(LoggedRun("lenet/esync", "lenet/esync", {"mode": "esync"}))
    assert package.statuses == {"new-0": "FAILED"}


@pytest.mark.parametrize("reference", ["number 7", {"uri": "http://x"}, {"id": "of another server"}])
def test_resumed_run_that_mlflow_does_not_know_begins_there(monkeypatch: pytest.MonkeyPatch, reference: Any) -> None:
    package = StandInMlflow(monkeypatch)
    run = LoggedRun("lenet/esync", "lenet/esync", {"mode": "esync"}, reference)
    assert MLflowLogger("http://x").begin(run) == {"id": "new-0", "uri": "http://x"}
    package.statuses["new-0"] = "FINISHED"
    assert MLflowLogger("http://x").begin(replace(run, resumed={"id": "new-0"}))["id"] == "new-0"
    assert package.statuses == {"new-0": "RUNNING"}


def test_facts_whose_names_mlflow_cannot_tell_apart_are_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    package = StandInMlflow(monkeypatch)
    MLflowLogger("http://x").begin(LoggedRun("lenet/esync", "lenet/esync", {"a+b": 1, "a*b": 2, "mode": "esync"}))
    assert [name for name, _ in package.parameters] == ["a_b", "mode"]


def test_classes_whose_names_mlflow_cannot_tell_apart_keep_curves_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    package = StandInMlflow(monkeypatch)
    logger = MLflowLogger("http://x")
    logger.begin(RUN)
    logger.write(1, 1.0, {"recall/C++": 0.25, "recall/C##": 0.5, "recall/猫": 0.75, "recall/犬": 1.0})
    logger.write(2, 2.0, {"recall/C##": 0.625})
    logger.flush()
    assert package.metrics == [
        *[("recall/C__", 0.25, 1), ("recall/C___2", 0.5, 1), ("recall/猫", 0.75, 1), ("recall/犬", 1.0, 1)],
        ("recall/C___2", 0.625, 2),
    ]
