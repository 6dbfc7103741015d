"""Call the callbacks of a finished round and, on rank 0, start evaluations in the background."""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from .. import config
from ..gluon.weight_average import WeightAverage
from ..membership.connections import TrafficMeter
from ..runtime import progress
from ..runtime.errors import EvaluationError
from ..runtime.evaluation_result import EvaluationResult
from ..runtime.futures import Handle
from ..runtime.metric import TEST_ACCURACY, Metric
from ..runtime.watchdog import WatchedWait
from .callbacks import Callback, Evaluated, FinishedRound

if TYPE_CHECKING:
    from ..algorithms import Algorithm
    from ..trainer import Trainer

log = logging.getLogger(__name__)

#: Seconds between two calls of `Callback.save` during the run.
FACTS_EVERY = 10.0


class Evaluator(Protocol):
    """Interface of the evaluation; see `evaluation_process.EvaluationProcess`."""

    def start(self, weights: Any, statistics: Any, every_sample: bool) -> Handle[EvaluationResult]:
        """Start to evaluate these values (flat arrays, opened), once the previous evaluation is done.

        `every_sample` says whether to use all test samples instead of the configured number.
        """

    def close(self) -> None:
        """End the evaluation."""


class Traffic(Protocol):
    """Counts bytes; see `membership.connections.TrafficMeter`."""

    def read_delta(self) -> tuple[int, int]:
        """Return the bytes sent and received since the last call."""


@dataclass(frozen=True)
class LogClock:
    """The clock of a worker's logs.

    Attributes:
        now: returns the time in seconds; only differences are meaningful.
        round: the last finished round of the run, if this worker joins a running job.
        exchanges: this worker's exchanges by then.
        elapsed: duration of the job so far in seconds.
    """

    now: Callable[[], float] = time.perf_counter
    round: int = 0
    exchanges: int = 0
    elapsed: float = 0.0


def average_of(algorithm: "Algorithm") -> WeightAverage:
    """Return an average that suits an algorithm: without exchanges, only some iterations are added."""
    return WeightAverage(config.ROUND_ITERATIONS if algorithm.sends == "nothing" else 1)


class PeriodicEvaluation:
    """Evaluates the common weights of some rounds, or their average, one evaluation at a time.

    Args:
        evaluator: evaluates the weights.
        every: exchanges of this worker between two evaluations, unless the algorithm has a number of
            steps.
        target: value of the metric that ends the run; None if there is none.
        metric: the metric that is evaluated.

    Attributes:
        newest: the newest completed evaluation; None before the first.
        tried: whether an evaluation, possibly the trial, has succeeded.
        failure: why evaluations have ended; "" if they have not.
    """

    def __init__(
        self, evaluator: Evaluator, every: int = 1, target: float | None = None, metric: Metric = TEST_ACCURACY
    ) -> None:
        self._evaluator, self._every, self._target, self._metric = evaluator, every, target, metric
        self._pending: tuple[Evaluated | None, Handle[EvaluationResult]] | None = None  # None: the trial
        self._begun = Evaluated(0, 0, 0.0, 0.0, 0, 0)  # the last started one, without its accuracy
        self._stopping = False  # whether the target is reached, so that only the final model is evaluated
        self.newest: Evaluated | None = None
        self.tried, self.failure = False, ""

    def try_out(self, trainer: "Trainer") -> None:
        """Evaluate once before the first round, to detect errors early.

        An evaluation longer than `config.EVALUATION_TRIAL` continues during the training.

        Raises:
            EvaluationError: the evaluation fails.
        """
        wait = WatchedWait("evaluate, which is tried before the first round", config.EVALUATION_TRIAL)
        self._pending = None, self._start(trainer)
        wait.until(self._pending[1].done)
        self.arrived()

    @property
    def under_way(self) -> bool:
        """Whether an evaluation is in progress."""
        return self._pending is not None

    def begin(self, trainer: "Trainer", exchanges: int, elapsed: Callable[[], float]) -> None:
        """Start an evaluation if one is due now; the final weights are always evaluated.

        Args:
            trainer: the trainer.
            exchanges: this worker's exchanges, as far as callbacks have taken them.
            elapsed: returns the seconds since the start.
        """
        result = trainer.algorithm.result
        step, samples = result.step, result.samples
        if (self._begun.exchanges, self._begun.step) == (exchanges, step) or self.failure:
            return
        every = trainer.algorithm.evaluate_every
        due = exchanges % self._every == 0 if every is None else step // every > self._begun.step // every
        if not ((due and not self._stopping) or trainer.finished):
            return
        if self._pending is not None:
            log.debug("round %d is not evaluated: an earlier evaluation is still under way", trainer.round)
            return
        self._begun = Evaluated(trainer.round, exchanges, 0.0, elapsed(), step, samples)
        self._pending = self._begun, self._start(trainer)

    def _start(self, trainer: "Trainer") -> Handle[EvaluationResult]:
        replica = trainer.replica
        replica.open()
        evaluation = self._evaluator.start(*replica.evaluated, trainer.finished)
        replica.close()
        return evaluation

    def arrived(self) -> Evaluated | None:
        """Return the evaluation that has ended since the last call, without waiting, or None.

        Raises:
            EvaluationError: it has failed; there will be no more.
        """
        if self._pending is None or not self._pending[1].done():
            return None
        (begun, evaluation), self._pending = self._pending, None
        try:
            result = evaluation.wait()
        except EvaluationError as error:
            self.failure = str(error)
            raise
        self.tried = True
        if begun is None:
            return None
        self.newest = replace(
            begun, accuracy=result.value, parts=result.parts, seconds=result.seconds, metric=self._metric
        )
        return self.newest

    def wait(self) -> None:
        """Wait for the evaluation in progress."""
        if self._pending is not None:
            with contextlib.suppress(EvaluationError):  # which `arrived` finds
                self._pending[1].wait()

    def reach_target(self, trainer: "Trainer", evaluated: Evaluated) -> str:
        """End the run if an evaluation reaches the target; return a message about it, or ""."""
        if self._target is None or trainer.finished or not self._metric.reached(evaluated.accuracy, self._target):
            return ""
        trainer.stop()
        self._stopping = True
        return (
            f"{self._metric.name} {self._metric.text(evaluated.accuracy)} of round {evaluated.round} reaches the "
            f"target {self._target}: stopping"
        )

    def give_up(self, trainer: "Trainer") -> None:
        """Continue without evaluations after a failure; end the run if it has a target.

        Raises:
            EvaluationError: no evaluation has succeeded, and the run is not finished yet.
        """
        if not self.tried and not trainer.finished:
            raise EvaluationError(self.failure)
        ends = self._target is not None and not trainer.finished
        consequence = "No round is evaluated any more; the training goes on to its final model"
        if ends:
            consequence = "The run ends with a final model, because nobody would notice its target"
        elif trainer.finished:
            consequence = "The run is finished, and its final model is written"
        progress.warn(f"{self.failure}. {consequence}")
        if ends:
            trainer.stop()

    def close(self) -> None:
        """End the evaluation."""
        self._evaluator.close()


class RoundCallbacks:
    """Calls the callbacks of one worker; the clock of the logs starts with the creation of this object.

    Args:
        callbacks: the callbacks, in the order of the calls.
        facts: facts about the whole run, for run.json.
        clock: the clock of the logs.
        evaluations: evaluations of the common weights; None on workers that do not evaluate.
        traffic: counts this worker's bytes; None counts all TCP connections of this process.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        facts: dict[str, Any],
        clock: LogClock,
        evaluations: PeriodicEvaluation | None,
        traffic: Traffic | None = None,
    ) -> None:
        self._callbacks, self._facts = [*callbacks], facts
        self._evaluations, self._meter = evaluations, traffic or TrafficMeter()
        self._exchanges = clock.exchanges  # the last one that callbacks have taken
        self._now = clock.now
        self._ended = self._saved = self._now()
        self._batch_size: int | None = None  # as the newest round tells
        self._began = self._ended - clock.elapsed
        for callback in callbacks:
            callback.save({**facts, "rounds": clock.round, "finished": False})

    def done(self, trainer: "Trainer", ago: float = 0.0) -> None:
        """Report the round that the last step has finished, and start its evaluation if due.

        Args:
            trainer: the trainer.
            ago: seconds since the end of the round.
        """
        self.poll(trainer)
        now = self._now()
        lasted, self._ended = now - self._ended, now
        result, recorder = trainer.algorithm.result, trainer.world.recorder
        sent, received = self._meter.read_delta()
        entry = {
            "num_iters": trainer.exchanges,
            **recorder.take(),
            "total_time": now - ago - self._began,
            "bytes_sent": sent,
            "bytes_received": received,
            "wait": result.wait,
            "transfer": result.transfer,
        }
        if trainer.algorithm.counts_exchanges:
            entry["round"] = trainer.round
        self._exchanges = trainer.exchanges
        batches = trainer.algorithm.batches  # step times are those of equal batches
        mean_size = round(entry["num_samples"] / max(1, trainer.local_iterations)) or None
        self._batch_size = mean_size if batches is None else batches.equal_size
        evaluated = self._evaluations.newest if self._evaluations is not None else None
        ended = FinishedRound(self._exchanges, entry, lasted, trainer.local_iterations, result, evaluated)
        for callback in self._callbacks:
            callback.round(ended)
        self._evaluate(trainer)
        if now - self._saved > FACTS_EVERY:
            self._save(trainer)

    def flush(self) -> None:
        """Write all logs to the disk before returning."""
        for callback in self._callbacks:
            callback.flush()

    def poll(self, trainer: "Trainer") -> None:
        """Report an accuracy that has arrived."""
        if self._evaluations is None:
            return
        try:
            evaluated = self._evaluations.arrived()
        except EvaluationError:
            self._evaluations.give_up(trainer)
            return
        if evaluated is None:
            return
        for callback in self._callbacks:
            callback.accuracy(evaluated)
        if text := self._evaluations.reach_target(trainer, evaluated):
            for callback in self._callbacks:
                callback.message(text)

    def end(self, trainer: "Trainer") -> None:
        """Wait for the accuracy of the final weights, and write all logs.

        Where the run has ended in a round to which this worker has contributed nothing, as it can in
        mode tiered, the final weights have a log file of their own, without samples.
        """
        if self._evaluations is not None and trainer.exchanges > self._exchanges:
            trainer.world.recorder.samples = 0  # of an update that came too late
            self.done(trainer, trainer.algorithm.result.since_change)
        self._evaluate(trainer)
        while self._evaluations is not None and self._evaluations.under_way:
            self._evaluations.wait()
            self.poll(trainer)
            self._evaluate(trainer)
        self._save(trainer, finished=True)

    def pause(self, trainer: "Trainer") -> None:
        """Write the logs of a run that will be resumed."""
        self._save(trainer)
        self.flush()

    @property
    def evaluates(self) -> bool:
        """Whether this worker evaluates."""
        return self._evaluations is not None

    def diverged(self) -> None:
        """Report that the run has ended because the loss of a worker is not a number."""
        for callback in self._callbacks:
            callback.diverged()

    def close(self) -> None:
        """End the evaluation and write the rest of the logs, after success or failure."""
        for callback in self._callbacks:
            callback.close()
        if self._evaluations is not None:
            self._evaluations.close()

    def _evaluate(self, trainer: "Trainer") -> None:
        if self._evaluations is not None:
            self._evaluations.begin(trainer, self._exchanges, lambda: self._now() - self._began)

    def _save(self, trainer: "Trainer", finished: bool = False) -> None:
        device = trainer.world.device
        self._saved = self._now()
        facts = {
            **trainer.algorithm.facts,  # first, so that they do not replace those of all algorithms
            "batch_size": self._batch_size,
            **self._facts,
            "iterations": getattr(device, "iterations", None),
            "overruns": getattr(device, "overruns", None),
            "rounds": trainer.round,
            **({"exchanges": trainer.exchanges} if trainer.algorithm.counts_exchanges else {}),
            "finished": finished,
        }
        for callback in self._callbacks:
            callback.save(facts)
