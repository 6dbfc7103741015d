"""What becomes of a finished round: a log file, a line of progress, and on rank 0 an evaluation in the background."""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from .curves import Curves
from .handles import Handle
from .liveness.connections import TrafficMeter
from .progress import Progress, Reporter
from .roundlog import RoundLog

if TYPE_CHECKING:
    from .coordination.reports import Reports
    from .trainer import Trainer

log = logging.getLogger(__name__)

#: Seconds between two writings of run.json while the run goes on.
FACTS_EVERY = 10.0


class Examiner(Protocol):
    """The seam of the evaluation; see `evaluate.EvaluationProcess`."""

    def start(self, weights: Any, statistics: Any, every_image: bool = False) -> Handle[float] | None:
        """Start evaluating these values (flat arrays, opened); None while an evaluation is under way.

        On as many test images as it is set to, or on every one of them.
        """

    def close(self) -> None:
        """No more evaluations."""


class Traffic(Protocol):
    """Counts bytes; see `liveness.connections.TrafficMeter`."""

    def take(self) -> tuple[int, int]:
        """Bytes sent and received since the last call."""


class RoundKeeper:
    """Keeps the rounds of one worker; the clock of the logs starts when it is made.

    Args:
        logs: where they are written.
        reporter: where they are told.
        facts: what is true of the whole run, for run.json.
        examiner: evaluates; None on workers that do not.
        every: rounds between two evaluations.
        target: test accuracy that ends the run; None for none.
        now: the clock, in seconds.
        round: the last round that is over, where this worker has come into a running job.
        elapsed: seconds that this job has lasted by now.
        reports: where the state server is told; None where there is none.
        traffic: counts the bytes of this worker; None: all TCP connections of this process.
        curves: where loss and accuracy are written step by step; None: nowhere.
    """

    def __init__(
        self,
        logs: RoundLog,
        reporter: Reporter,
        facts: dict[str, Any],
        examiner: Examiner | None = None,
        every: int = 1,
        target: float | None = None,
        now: Callable[[], float] = time.perf_counter,
        round: int = 0,
        elapsed: float = 0.0,
        reports: "Reports | None" = None,
        traffic: Traffic | None = None,
        curves: Curves | None = None,
    ) -> None:
        self._logs, self._reporter, self._facts = logs, reporter, facts
        self._examiner, self._every, self._target = examiner, every, target
        self._reports, self._curves = reports, curves
        self._meter = traffic or TrafficMeter()
        self._pending: tuple[int, Handle[float]] | None = None
        self._accuracy: tuple[int, float] | None = None  # round, value
        self._round = round  # the last one logged
        self._stopping = False  # the target is reached: what matters now is the final model
        self._examined = 0  # the last one whose weights went into an evaluation …
        self._examined_at = (0.0, 0, 0)  # … after how many seconds, steps of the common model and samples
        self._now = now
        self._ended = self._wrote_facts = now()
        self._began = self._ended - elapsed
        self._logs.run({**facts, "rounds": round, "finished": False})

    def done(self, trainer: "Trainer") -> None:
        """Log, evaluate and report the round that the last step has ended."""
        self.poll(trainer)
        now = self._now()
        lasted, self._ended = now - self._ended, now
        result = trainer.algorithm.result
        sent, received = self._meter.take()
        entry = {
            "num_iters": trainer.round,
            **trainer.world.recorder.take(),
            "total_time": now - self._began,
            "bytes_sent": sent,
            "bytes_received": received,
            "wait": result.wait if result else 0.0,
            "transfer": result.transfer if result else 0.0,
        }
        self._round = trainer.round
        if self._curves is not None and result is not None and trainer.world.recorder.loss is not None:
            self._curves.round(entry["total_time"], result, trainer.world.recorder.loss)
        self._logs.round(self._round, entry, keep=self._examiner is not None)
        if self._reports is not None:
            self._reports.round(self._round, entry, trainer.local_iterations, lasted)
        self._evaluate(trainer)
        if now - self._wrote_facts > FACTS_EVERY:
            self._write_facts(trainer)
        accuracy_round, accuracy = self._accuracy or (None, None)
        self._reporter.round(
            Progress(
                rank=self._facts["rank"],
                round=trainer.round,
                local_iterations=trainer.local_iterations,
                samples_per_second=entry["num_samples"] / lasted,
                wait=entry["wait"],
                elapsed=entry["total_time"],
                accuracy=accuracy,
                accuracy_round=accuracy_round,
            )
        )

    def flush(self) -> None:
        """What is logged by now is on the disk when this returns."""
        self._logs.flush()

    def poll(self, trainer: "Trainer") -> None:
        """File an accuracy that has arrived."""
        if self._pending is None or not self._pending[1].done():
            return
        number, evaluation = self._pending
        self._pending = None
        accuracy = evaluation.result()
        self._accuracy = (number, accuracy)
        self._logs.accuracy(number, accuracy)
        self._reporter.accuracy(number, accuracy)
        if self._curves is not None:
            self._curves.accuracy(*self._examined_at, accuracy)
        if self._reports is not None:
            self._reports.accuracy(number, accuracy)
        if self._target is not None and accuracy >= self._target and not trainer.finished:
            self._reporter.say(f"accuracy {accuracy:.3f} of round {number} reaches the target {self._target}: stopping")
            trainer.stop()
            self._stopping = True

    def end(self, trainer: "Trainer") -> None:
        """Wait for the accuracy of the final weights, and write everything down."""
        self._evaluate(trainer)
        while self._pending is not None:
            self._pending[1].wait()
            self.poll(trainer)
            self._evaluate(trainer)
        self._write_facts(trainer, finished=True)

    def diverged(self) -> None:
        """The run has ended because the loss of some worker is no number any more."""
        if self._curves is not None:
            self._curves.diverged()

    def close(self) -> None:
        """However the run has ended: let the evaluation go, and let what was logged reach the disk."""
        if self._curves is not None:
            self._curves.write()
        self._logs.close()
        if self._examiner is not None:
            self._examiner.close()

    def _evaluate(self, trainer: "Trainer") -> None:
        """Start an evaluation where it is the round's turn; the final weights always are, in the end."""
        if self._examiner is None or self._examined == self._round:
            return
        result = trainer.algorithm.result
        step, samples = (result.step, result.samples) if result is not None else (self._round, 0)
        every = trainer.algorithm.evaluate_every
        due = self._round % self._every == 0 if every is None else step // every > self._examined_at[1] // every
        if not ((due and not self._stopping) or trainer.finished):
            return
        if self._pending is not None:
            log.debug("round %d is not evaluated: an earlier evaluation is still under way", self._round)
            return
        replica = trainer.replica
        replica.open()
        evaluation = self._examiner.start(*replica.common, trainer.finished)
        replica.close()
        if evaluation is not None:
            self._pending = (self._round, evaluation)
            self._examined = self._round
            self._examined_at = (self._now() - self._began, step, samples)

    def _write_facts(self, trainer: "Trainer", finished: bool = False) -> None:
        device = trainer.world.device
        self._wrote_facts = self._now()
        if self._curves is not None:
            self._curves.write()
        self._logs.run(
            {
                **trainer.algorithm.facts,  # first: what is the same for all algorithms keeps its meaning
                **self._facts,
                "iterations": getattr(device, "iterations", None),
                "overruns": getattr(device, "overruns", None),
                "rounds": trainer.round,
                "finished": finished,
            }
        )
