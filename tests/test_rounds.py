import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from esync.curves import Curves
from esync.exchange import Result
from esync.measure import Recorder
from esync.progress import Progress, Reporter, parse
from esync.roundlog import RoundLog
from esync.rounds import RoundKeeper


class Evaluation:
    """Done when the test says so."""

    def __init__(self, examiner: "Examiner", weights: float) -> None:
        self.examiner, self.weights, self.is_done = examiner, weights, False

    def done(self) -> bool:
        return self.is_done

    def result(self) -> float:
        assert self.is_done
        return self.weights / 100

    def wait(self) -> float:
        self.is_done = True
        return self.result()


class Examiner:
    """The "accuracy" of the weights is a hundredth of them; one evaluation at a time."""

    def __init__(self) -> None:
        self.started: list[Evaluation] = []
        self.every_image: list[bool] = []
        self.closed = False

    def start(self, weights: float, statistics: float, every_image: bool = False) -> Evaluation | None:
        if self.started and not self.started[-1].is_done:
            return None
        self.started.append(Evaluation(self, weights))
        self.every_image.append(every_image)
        return self.started[-1]

    def close(self) -> None:
        self.closed = True


class Replica:
    """Its weights are a number."""

    weights, statistics = 0.0, 0.0

    @property
    def common(self) -> tuple[float, float]:
        return self.weights, self.statistics

    def open(self) -> None:
        pass

    close = open


class Trainer:
    """Its weights are the number of the round, unless the test changes them."""

    def __init__(self) -> None:
        self.round, self.finished, self.local_iterations, self.stops = 0, False, 3, 0
        self.algorithm = SimpleNamespace(
            result=Result(0, 0, 0, wait=0.25, transfer=0.125, finished=False), evaluate_every=None
        )
        device = SimpleNamespace(iterations=7, overruns=1, now=lambda: 0.0)
        self.world = SimpleNamespace(recorder=Recorder(device.now), device=device)
        self.replica = Replica()

    def stop(self) -> None:
        self.stops += 1


class Run:
    """Rounds of one worker, kept by a RoundKeeper."""

    def __init__(self, folder: Path, examine: bool = True, **options) -> None:
        self.stream = io.StringIO()
        self.examiner = Examiner() if examine else None
        self.trainer = Trainer()
        self.logs = RoundLog(folder, "cpu")
        reporter = Reporter(quiet=True, machine=True, stream=self.stream)
        self.keeper = RoundKeeper(self.logs, reporter, {"rank": 2}, self.examiner, **options)

    def round(self, samples: int = 64, finished: bool = False) -> None:
        self.trainer.round += 1
        self.trainer.finished = finished
        self.trainer.replica.weights = float(self.trainer.round)
        self.trainer.world.recorder.samples = samples
        self.trainer.world.recorder.add("forward and backward", 0.5)
        self.keeper.done(self.trainer)

    def arrive(self) -> None:
        """The evaluation under way is done."""
        self.examiner.started[-1].is_done = True

    def end(self) -> dict[int, float | None]:
        """The accuracies that are in the logs in the end, by round."""
        self.trainer.finished = True
        self.keeper.end(self.trainer)
        self.keeper.close()
        files = {int(path.stem.split("-")[1]): path for path in self.logs.folder.glob("iter-*.txt")}
        return {number: json.loads(files[number].read_text()).get("accuracy") for number in sorted(files)}

    @property
    def progress(self) -> list[Progress]:
        return [found for line in self.stream.getvalue().splitlines() if (found := parse(line)) is not None]


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path)


def test_what_is_logged_of_a_round(run):
    run.round(samples=128)
    run.end()
    entry = json.loads((run.logs.folder / "iter-1.txt").read_text())
    assert entry.pop("total_time") > 0
    assert entry.pop("bytes_sent") >= 0
    assert entry.pop("bytes_received") >= 0
    assert entry == {
        "num_iters": 1,
        "time": {"0": {"forward and backward": 0.5}},
        "num_samples": 128,
        "wait": 0.25,
        "transfer": 0.125,
        "accuracy": 0.01,
    }


def test_flushed_is_on_the_disk(run):
    run.round()
    run.keeper.flush()
    assert (run.logs.folder / "iter-1.txt").exists()
    run.end()


def test_the_facts_of_the_run(run):
    run.round()
    run.end()
    facts = json.loads((run.logs.folder / "run.json").read_text())
    assert facts == {"rank": 2, "iterations": 7, "overruns": 1, "rounds": 1, "finished": True}


def test_an_accuracy_that_arrives_between_rounds_is_filed_under_its_own(run):
    run.round()
    run.keeper.poll(run.trainer)
    run.arrive()
    run.keeper.poll(run.trainer)
    run.round()
    assert run.end() == {1: 0.01, 2: 0.02}


def test_an_accuracy_that_arrives_in_an_iteration_that_ends_a_round_is_filed_too(run):
    """As in the modes in which every iteration is a round: nobody asks for it between two rounds."""
    for _ in range(4):
        run.round()
        run.arrive()
    assert run.end() == {1: 0.01, 2: 0.02, 3: 0.03, 4: 0.04}


def test_rounds_that_end_during_an_evaluation_are_not_evaluated(run):
    for _ in range(3):
        run.round()
    run.arrive()
    run.keeper.poll(run.trainer)
    run.round()
    run.round()
    assert run.end() == {1: 0.01, 2: None, 3: None, 4: 0.04, 5: 0.05}


def test_the_final_weights_are_evaluated_after_an_evaluation_under_way(run):
    run.round()
    run.round(finished=True)
    assert run.end() == {1: 0.01, 2: 0.02}
    assert len(run.examiner.started) == 2


def test_the_final_weights_are_evaluated_once(run):
    run.round(finished=True)
    run.arrive()
    assert run.end() == {1: 0.01}
    assert len(run.examiner.started) == 1


def test_only_the_final_weights_are_evaluated_on_every_image(run):
    run.round()
    run.arrive()
    run.round(finished=True)
    assert run.end() == {1: 0.01, 2: 0.02}
    assert run.examiner.every_image == [False, True]


def test_once_the_target_is_reached_only_the_final_weights_are_evaluated(tmp_path):
    run = Run(tmp_path, target=0.02)
    run.round()
    run.arrive()
    run.round()
    run.arrive()
    run.round()  # the one in which the others learn of the end
    run.round(finished=True)
    assert run.end() == {1: 0.01, 2: 0.02, 3: None, 4: 0.04}


def test_every_so_many_rounds_and_in_the_end(tmp_path):
    run = Run(tmp_path, every=3)
    for _ in range(7):
        run.round()
        if run.examiner.started:
            run.arrive()
    assert run.end() == {1: None, 2: None, 3: 0.03, 4: None, 5: None, 6: 0.06, 7: 0.07}


def test_a_worker_that_does_not_evaluate(tmp_path):
    run = Run(tmp_path, examine=False)
    run.round()
    run.round(finished=True)
    assert run.end() == {1: None, 2: None}


def test_a_run_that_is_over_before_its_first_round(run):
    run.trainer.round = 7  # of a slot that somebody else has held
    assert run.end() == {}
    assert run.examiner.closed


def test_reaching_the_target_stops_the_run(tmp_path):
    run = Run(tmp_path, target=0.02)
    run.round()
    run.arrive()
    run.keeper.poll(run.trainer)
    assert run.trainer.stops == 0
    run.round()
    run.arrive()
    run.keeper.poll(run.trainer)
    assert run.trainer.stops == 1


def test_no_need_to_stop_a_run_that_is_over(tmp_path):
    run = Run(tmp_path, target=0.01)
    run.round(finished=True)
    run.end()
    assert run.trainer.stops == 0


def test_what_is_reported_of_a_round(run):
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

    def accuracy(self, number: int, accuracy: float) -> None:
        self.told.append(("accuracy", number, accuracy))


def test_rounds_and_accuracies_are_reported(tmp_path):
    reports = Reports()
    clock = iter([0.0, 2.0, 5.0, 5.0, 5.0, 5.0])
    run = Run(tmp_path, reports=reports, now=lambda: next(clock))
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


def test_loss_and_accuracy_step_by_step(tmp_path):
    logs, examiner, trainer = RoundLog(tmp_path, "cpu"), Examiner(), Trainer()
    trainer.algorithm.evaluate_every = 4  # steps, of which an asynchronous round has many
    clock = SimpleNamespace(now=0.0)
    curves = Curves(logs, 1000.0)
    reporter = Reporter(quiet=True, machine=False)
    keeper = RoundKeeper(logs, reporter, {"rank": 0}, examiner, now=lambda: clock.now, curves=curves)
    for round_, step in ((1, 1), (2, 2), (3, 9), (4, 10)):
        clock.now += 1.5
        trainer.round, trainer.finished, trainer.replica.weights = round_, round_ == 4, float(round_)
        trainer.algorithm.result = Result(round_, step, 8 * step, 0.0, 0.0, trainer.finished, step=step)
        trainer.world.recorder.loss = 1.0 / round_
        keeper.done(trainer)
        if examiner.started:
            examiner.started[-1].is_done = True
    keeper.end(trainer)
    keeper.diverged()
    keeper.close()
    heading = "Wall time,Time,Step,Samples,Value\n"
    assert (tmp_path / "cpu" / "acc.csv").read_text() == (
        heading + "1004.500000,4.500000,9,72,0.03\n1006.000000,6.000000,10,80,0.04\n"
    )
    assert (tmp_path / "cpu" / "loss.csv").read_text() == (
        heading + "1001.500000,1.500000,1,8,1\n1006.000000,6.000000,10,80,0.25\n1006.000000,6.000000,10,80,nan\n"
    )


def test_the_curves_of_a_run_that_goes_on(tmp_path):
    logs = RoundLog(tmp_path, "cpu")
    for step, broken in ((4, ""), (6, "7,7,7,7")):
        curves = Curves(logs, 0.0, step - 1)
        for each in (step, step + 1):
            curves.accuracy(float(each), each, 0, 0.5)
        curves.write()
        logs.flush()
        with open(tmp_path / "cpu" / "acc.csv", "a") as file:
            file.write(broken)
    logs.close()
    steps = [row.split(",")[2] for row in (tmp_path / "cpu" / "acc.csv").read_text().splitlines()[1:]]
    assert steps == ["4", "5", "6", "7", "7"]
