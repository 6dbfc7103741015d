"""What a Trainer tells the other workers when its program ends or pauses."""

import contextlib
from typing import Any

import pytest

import esync
from esync import TrainerCallback
from esync.algorithms import SSGD
from esync.exchange import JobAbortedError, SlotLostError
from esync.runtime import progress
from esync.runtime.environment import SUPERVISED_VARIABLE
from esync.runtime.errors import ExpectedError
from esync.runtime.phase_timer import PhaseTimer
from esync.runtime.watchdog import InterruptedBySignalError

from ..runtime.test_device import FakeTime
from ..support.scripted_world import World, steady_world
from ..support.small_net import BATCH, backward, flat, local_trainer, make_net, sgd_trainer, take_steps


def started(net, last: bool = False, rank: int = 1, **arguments: Any) -> esync.Trainer:
    """Worker 1 of a run, or another one; `last`: it is finished with the first round."""
    world = steady_world(flat(net), rank=rank)
    world.answers = [(flat(net), last, True)]
    trainer = sgd_trainer(net, "sync", world=world, **arguments)
    trainer.start()
    return trainer


def notices(trainer: esync.Trainer) -> list[Any]:
    """What the others have been told since the run has begun."""
    return [call for call in trainer.world.made.log if call != "exchange"][2:]


class Records(TrainerCallback):
    """What a Run is told of the end."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def train_end(self, trainer: esync.Trainer) -> None:
        self.told.append("end")

    def train_failed(self, trainer: esync.Trainer, reason: str) -> None:
        self.told.append(reason)

    def close(self) -> None:
        self.told.append("close")


@pytest.mark.parametrize("error", [None, ValueError()])
def test_trainer_after_finished_run_tells_nobody_how_its_program_ends(error, caplog) -> None:
    net = make_net()
    trainer = started(net, last=True)
    with contextlib.suppress(ValueError), trainer:
        take_steps(net, trainer, 0)
        if error:
            raise error
    assert (notices(trainer), caplog.text) == (["close"], "")


@pytest.mark.parametrize(
    ("rank", "ends_run", "stops", "expected", "warning"),
    [
        (0, False, False, ["close"], "worker 0 leaves after round 0, before the run is finished: nobody evaluates"),
        (1, False, False, ["close"], "worker 1 leaves after round 0, before the run is finished: nobody trains on its"),
        (0, False, True, ["stop", "close"], ""),
        (1, False, True, ["stop", "close"], ""),
        (0, True, False, ["stop", "close"], "worker 0 ends before the run is finished"),
    ],
)
def test_trainer_closed_before_the_run_is_finished_says_what_becomes_of_it(
    rank, ends_run, stops, expected, warning, caplog
) -> None:
    trainer = started(make_net(), rank=rank)
    trainer.ends_run = ends_run
    if stops:
        trainer.stop()
    trainer.close()
    assert notices(trainer) == expected
    assert caplog.text.strip().rpartition("  ")[2].partition("py:")[2].partition(" ")[2].startswith(warning)


def test_trainer_after_close_tells_nothing() -> None:
    trainer = started(make_net())
    with contextlib.suppress(ValueError), trainer:
        trainer.close()
        trainer.close()
        raise ValueError
    assert notices(trainer) == ["close"]


def test_trainer_leaves_although_another_worker_has_failed_meanwhile() -> None:
    def prepare(exchange) -> None:
        def abort(reason: str) -> None:
            raise JobAbortedError("worker 0: RuntimeError")

        exchange.abort = abort

    net = make_net()
    world = World(rank=1, prepare=prepare)
    trainer = sgd_trainer(net, "sync", world=world)
    with contextlib.suppress(ValueError), trainer:
        with contextlib.suppress(ValueError):
            trainer.start()  # the script's model does not fit
        raise ValueError
    assert world.made.log[-1] == "close"


def test_trainer_that_has_not_started_or_works_alone_has_nobody_to_tell(caplog) -> None:
    net = make_net()
    with sgd_trainer(net, "sync", world=World()):
        pass
    with local_trainer(net) as trainer:
        take_steps(net, trainer, 0)
    assert caplog.text == ""


def test_step_raises_the_others_error_without_its_earlier_traceback() -> None:
    def start(*_: Any) -> Any:
        raise JobAbortedError("worker 0: RuntimeError: no memory")

    net = make_net()
    trainer = started(net)
    trainer.world.made.start = start
    backward(net, 0)
    with pytest.raises(JobAbortedError, match="worker 0: RuntimeError: no memory") as caught:
        trainer.step(BATCH)
    assert [entry.name for entry in caught.traceback][1:] == ["step", "step_optimizer"]


def test_paused_is_no_part_of_an_iteration() -> None:
    """Neither for the state server, which is asked after the second iteration, nor in the log."""
    net = make_net()
    world = steady_world(flat(net), ready=[False, True])
    world.answers = [(flat(net), True, True)]
    world.device = device = FakeTime()
    world.recorder = PhaseTimer(device.now)
    trainer = sgd_trainer(net, "esync", world=world, run=Records())
    device.time += 50.0
    trainer.start()
    for _ in range(2):
        backward(net, 0)
        device.time += 2.0
        with trainer.paused(), trainer.paused():
            device.time += 100.0
        trainer.step(BATCH)
    asked = [call for call in world.made.log if call[0] == "ask"]
    assert asked == [("ask", 1, 0, 0.0), ("ask", 1, 1, 2.0), ("ask", 1, 2, 2.0)]
    recorded = world.recorder.take()
    assert recorded["iteration_times"] == [2.0, 2.0]
    assert [recorded["time"][number]["forward and backward"] for number in ("0", "1")] == [2.0, 2.0]


@pytest.mark.parametrize(
    ("error", "expected", "to_be_replaced", "reported"),
    [
        (
            ValueError("no such file"),
            [("abort", "worker 1: ValueError: no such file")],
            True,
            {"kind": "failed", "reason": "ValueError: no such file", "exchanges": 0},
        ),
        (KeyboardInterrupt(), [("abort", "worker 1: interrupted (SIGINT)")], True, None),
        (InterruptedBySignalError("SIGTERM"), [("abort", "worker 1: ended by SIGTERM")], True, None),
        (SlotLostError("worker 1 was not heard"), [], False, None),
        (
            JobAbortedError("worker 0: RuntimeError"),
            [],
            False,
            {"kind": "over", "reason": "worker 0: RuntimeError", "consequence": True},
        ),
        (
            ExpectedError("the disk is full"),
            [("abort", "worker 1: the disk is full")],
            False,
            {"kind": "over", "reason": "the disk is full", "consequence": False},
        ),
        (
            SystemExit(3),
            [("abort", "worker 1: exit code 3")],
            False,
            {"kind": "over", "reason": "exit code 3", "consequence": False},
        ),
        (SystemExit(0), ["stop"], False, None),
    ],
)
@pytest.mark.parametrize("supervised", [False, True])
def test_trainer_left_by_an_error_tells_the_others_unless_they_know_or_it_is_replaced(
    error, expected, to_be_replaced, reported, supervised, monkeypatch, capsys
) -> None:
    """A failure lets a supervised worker be replaced, an end on purpose does not."""
    if supervised:
        monkeypatch.setenv(SUPERVISED_VARIABLE, "1")
    monkeypatch.setenv(progress.VARIABLE, "json")
    trainer = started(make_net())
    with pytest.raises(type(error)), trainer:
        raise error
    events = [progress.parse_event(line) for line in capsys.readouterr().out.splitlines()]
    assert notices(trainer) == ([] if supervised and to_be_replaced else [*expected, "close"])
    if supervised:
        reports = [event for event in events if event and event["kind"] != progress.WARNING]
        assert reports[2:] == [reported] * (reported is not None)


def test_error_in_an_algorithm_of_ones_own_would_come_again_in_a_replacement(monkeypatch) -> None:
    class Broken(SSGD):
        def before_exchange(self, model: Any) -> None:
            raise RuntimeError("boom")

    monkeypatch.setenv(SUPERVISED_VARIABLE, "1")
    net = make_net()
    trainer = sgd_trainer(net, Broken(), world=steady_world(flat(net), rank=1))
    with pytest.raises(RuntimeError), trainer:
        take_steps(net, trainer, 0)
    assert notices(trainer) == [("abort", "worker 1: RuntimeError: boom"), "close"]


@pytest.mark.parametrize(
    ("error", "finished", "replaced", "expected"),
    [
        (None, False, False, ["end"]),
        (None, True, False, ["end"]),
        (ValueError("no"), False, False, ["worker 1: ValueError: no", "end"]),
        (ValueError("no"), True, False, ["ValueError: no", "end"]),
        (JobAbortedError("worker 0: no"), False, False, ["worker 0: no", "end"]),
        (ValueError("no"), False, True, ["close"]),
    ],
)
def test_run_records_end_as_the_program_does(error, finished, replaced, expected, monkeypatch) -> None:
    if replaced:
        monkeypatch.setenv(SUPERVISED_VARIABLE, "1")
    net, run = make_net(), Records()
    trainer = started(net, last=True, run=run)
    with contextlib.suppress(ValueError, JobAbortedError), trainer:
        if finished:
            take_steps(net, trainer, 0)
        if error:
            raise error
    assert run.told == expected


@pytest.mark.parametrize("finished", [False, True])
def test_trainer_without_records_reports_the_end_of_finished_run_only(finished, monkeypatch, capsys) -> None:
    monkeypatch.setenv(progress.VARIABLE, "json")
    net = make_net()
    with started(net, last=True) as trainer:
        if finished:
            take_steps(net, trainer, 0)
    events = [progress.parse_event(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [progress.FINISHED, progress.LEFT] if finished else [progress.WARNING]
    assert [event["kind"] for event in events if event][2:] == kinds


def test_close_leaves_although_the_records_cannot_be_ended() -> None:
    class Full(Records):
        def train_end(self, trainer: esync.Trainer) -> None:
            super().train_end(trainer)
            if len(self.told) == 1:
                raise ExpectedError("the disk is full")

    trainer = started(make_net(), run=Full())
    with pytest.raises(ExpectedError):
        trainer.close()
    trainer.close()
    assert notices(trainer) == ["close"]


def test_step_after_close_is_refused() -> None:
    net = make_net()
    trainer = local_trainer(net)
    take_steps(net, trainer, 1)
    trainer.close()
    trainer.close()
    backward(net, 2)
    with pytest.raises(RuntimeError, match=r"the trainer is closed \(trainer\.close\(\)\)"):
        trainer.step(BATCH)
