"""The callbacks of a round: progress, reports to the state server, curves."""

from collections.abc import Mapping
from types import SimpleNamespace

from esync.exchange import Result
from esync.runtime.progress import ProgressReporter
from esync.training.callbacks import Callback, CurveFiles, Evaluated, LogFiles, ProgressLines, StateServerReports
from esync.training.round_callbacks import LogClock, PeriodicEvaluation, RoundCallbacks
from esync.training.round_log import RoundLog

from ..support.kept_rounds import FakeEvaluator, Run, Trainer


def test_progress_of_a_round_is_reported(tmp_path):
    run = Run(tmp_path)
    run.round()
    run.arrive()
    run.keeper.poll(run.trainer)
    run.round()
    first, with_accuracy, second = run.progress
    assert (with_accuracy.round, with_accuracy.accuracy, with_accuracy.accuracy_round) == (1, 0.01, 1)
    assert (first.rank, first.round, first.local_iterations, first.wait) == (2, 1, 3, 0.25)
    assert (first.accuracy, first.accuracy_round) == (None, None)
    assert (second.round, second.accuracy, second.accuracy_round) == (2, 0.01, 1)
    assert second.samples_per_second > 0
    assert second.elapsed > first.elapsed


class Reports:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple] = []

    def round(self, number: int, entry: dict, local_iterations: int, seconds: float) -> None:
        self.told.append(("round", number, entry["num_samples"], local_iterations, seconds))

    def accuracy(self, number: int, accuracy: float, parts: Mapping[str, float]) -> None:
        self.told.append(("accuracy", number, accuracy))


def test_state_server_reports_contain_rounds_and_accuracies(tmp_path):
    reports = Reports()
    clock = iter([0.0, 2.0, 5.0, 5.0, 5.0, 5.0])
    run = Run(tmp_path, callbacks=[StateServerReports(reports)], now=lambda: next(clock))
    run.round(samples=128)
    run.arrive()
    run.round()
    run.end()
    assert reports.told == [
        ("round", 1, 128, 3, 2.0),
        ("accuracy", 1, 0.01),
        ("round", 2, 64, 3, 3.0),
        ("accuracy", 2, 0.02),
    ]


class Own(Callback):
    """A callback of a user's own: overrides some of the methods."""

    def __init__(self) -> None:
        self.told: list[tuple] = []

    def save(self, facts: dict) -> None:
        self.told.append(("save", facts["rounds"], facts["finished"]))

    def round(self, ended) -> None:
        self.told.append(("round", ended.number, ended.evaluated and ended.evaluated.accuracy, ended.result.wait))

    def message(self, text: str) -> None:
        self.told.append(("say", text))

    def close(self) -> None:
        self.told.append(("close",))


def test_custom_callback_is_called_through_the_run(tmp_path):
    callback = Own()
    run = Run(tmp_path, callbacks=[callback, Callback()], target=0.02)
    run.round()
    run.arrive()
    run.round()
    run.arrive()
    run.keeper.poll(run.trainer)
    run.keeper.flush()
    run.end()
    assert callback.told == [
        ("save", 0, False),
        ("round", 1, None, 0.25),
        ("round", 2, 0.01, 0.25),
        ("say", "accuracy 0.020 of round 2 reaches the target 0.02: stopping"),
        ("save", 2, True),
        ("close",),
    ]


def test_csv_curves_contain_loss_and_accuracy_by_step(tmp_path):
    logs, evaluator, trainer = RoundLog(tmp_path, "cpu"), FakeEvaluator(), Trainer()
    trainer.algorithm.evaluate_every = 4  # steps, of which an asynchronous round has many
    clock = SimpleNamespace(now=0.0)
    curves = CurveFiles(logs, 1000.0)
    reporter = ProgressReporter(quiet=True, machine=False)
    callbacks = [curves, LogFiles(logs), ProgressLines(reporter, 0)]
    keeper = RoundCallbacks(callbacks, {"rank": 0}, LogClock(lambda: clock.now), PeriodicEvaluation(evaluator))
    for round_, step in ((1, 1), (2, 2), (3, 9), (4, 10)):
        clock.now += 1.5
        trainer.exchanges, trainer.finished, trainer.replica.weights = round_, round_ == 4, float(round_)
        trainer.algorithm.result = Result(round_, step, 8 * step, 0.0, 0.0, trainer.finished, step=step)
        trainer.world.recorder.log("loss", 1.0 / round_)
        keeper.done(trainer)
        if evaluator.started:
            evaluator.started[-1].is_done = True
    keeper.end(trainer)
    keeper.diverged()
    keeper.close()
    heading = "Wall time,Time,Step,Samples,Value\n"
    assert (tmp_path / "cpu/acc.csv").read_text() == (
        heading + "1004.500000,4.500000,9,72,0.03\n1006.000000,6.000000,10,80,0.04\n"
    )
    assert (tmp_path / "cpu/loss.csv").read_text() == (
        heading + "1001.500000,1.500000,1,8,1\n1006.000000,6.000000,10,80,0.25\n1006.000000,6.000000,10,80,nan\n"
    )


def test_csv_curves_of_a_resumed_run_drop_later_steps(tmp_path):
    logs = RoundLog(tmp_path, "cpu")
    for step, broken in ((4, ""), (6, "7,7,7,7")):
        curves = CurveFiles(logs, 0.0, step - 1)
        for number in (step, step + 1):
            curves.accuracy(Evaluated(number, number, 0.5, float(number), number, 0))
        curves.close()
        logs.flush()
        with open(tmp_path / "cpu/acc.csv", "a") as file:
            file.write(broken)
    logs.close()
    steps = [row.split(",")[2] for row in (tmp_path / "cpu/acc.csv").read_text().splitlines()[1:]]
    assert steps == ["4", "5", "6", "7", "7"]
