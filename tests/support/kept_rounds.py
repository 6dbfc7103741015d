"""Rounds of a worker without cluster and network, kept by a real RoundCallbacks."""

import io
import time
from pathlib import Path
from types import SimpleNamespace

from esync.exchange import Result
from esync.runtime.evaluation_result import EvaluationResult
from esync.runtime.phase_timer import PhaseTimer
from esync.runtime.progress import Progress, ProgressReporter, parse
from esync.training.callbacks import LogFiles, ProgressLines
from esync.training.round_callbacks import LogClock, PeriodicEvaluation, RoundCallbacks
from esync.training.round_log import RoundLog

from .json_files import read_json


class Evaluation:
    """Done when the test says so."""

    def __init__(self, weights: float) -> None:
        self.weights, self.is_done = weights, False

    def done(self) -> bool:
        return self.is_done

    def wait(self) -> EvaluationResult:
        self.is_done = True
        return EvaluationResult(self.weights / 100)


class FakeEvaluator:
    """The "accuracy" of the weights is a hundredth of them; one evaluation at a time."""

    def __init__(self) -> None:
        self.started: list[Evaluation] = []
        self.every_sample: list[bool] = []
        self.closed = False

    def start(self, weights: float, statistics: float, every_sample: bool = False) -> Evaluation:
        assert not self.started or self.started[-1].is_done
        self.started.append(Evaluation(weights))
        self.every_sample.append(every_sample)
        return self.started[-1]

    def close(self) -> None:
        self.closed = True


class Replica:
    """Its weights are a number."""

    weights, statistics = 0.0, 0.0

    @property
    def evaluated(self) -> tuple[float, float]:
        return self.weights, self.statistics

    def open(self) -> None:
        pass

    close = open


class Trainer:
    """Its weights are the number of the exchange, unless the test changes them."""

    def __init__(self) -> None:
        self.exchanges, self.finished, self.local_iterations, self.stops = 0, False, 3, 0
        self.algorithm = SimpleNamespace(
            result=Result(0, 0, 0, wait=0.25, transfer=0.125, finished=False),
            evaluate_every=None,
            facts={},
            counts_exchanges=False,
            batches=None,
        )
        device = SimpleNamespace(iterations=7, overruns=1, now=lambda: 0.0)
        self.world = SimpleNamespace(recorder=PhaseTimer(device.now), device=device)
        self.replica = Replica()

    @property
    def round(self) -> int:
        return self.algorithm.result.round if self.algorithm.counts_exchanges else self.exchanges

    def stop(self) -> None:
        self.stops += 1


class Run:
    """Rounds of one worker, kept by a RoundCallbacks."""

    def __init__(self, folder: Path, evaluate: bool = True, callbacks=(), now=time.perf_counter, **evaluated) -> None:
        self.stream = io.StringIO()
        self.evaluator = FakeEvaluator() if evaluate else None
        self.trainer = Trainer()
        self.logs = RoundLog(folder, "cpu")
        reporter = ProgressReporter(quiet=True, machine=True, stream=self.stream)
        evaluations = None if self.evaluator is None else PeriodicEvaluation(self.evaluator, **evaluated)
        all_callbacks = [LogFiles(self.logs), *callbacks, ProgressLines(reporter, 2)]
        self.keeper = RoundCallbacks(all_callbacks, {"rank": 2}, LogClock(now), evaluations)

    def round(self, samples: int = 64, finished: bool = False) -> None:
        self.trainer.exchanges += 1
        self.trainer.finished = finished
        self.trainer.replica.weights = float(self.trainer.exchanges)
        self.trainer.world.recorder.samples = samples
        self.trainer.world.recorder.add("forward and backward", 0.5)
        self.keeper.done(self.trainer)

    def arrive(self) -> None:
        """The evaluation under way is done."""
        self.evaluator.started[-1].is_done = True

    def end(self) -> dict[int, float | None]:
        """The accuracies that are in the logs in the end, by round."""
        self.trainer.finished = True
        self.keeper.end(self.trainer)
        self.keeper.close()
        files = {int(path.stem.split("-")[1]): path for path in self.logs.folder.glob("iter-*.txt")}
        return {number: read_json(files[number]).get("accuracy") for number in sorted(files)}

    @property
    def facts(self) -> dict:
        """What is in run.json."""
        return read_json(self.logs.folder / "run.json")

    @property
    def progress(self) -> list[Progress]:
        return [report for line in self.stream.getvalue().splitlines() if (report := parse(line)) is not None]
