"""Callbacks of a trainer: `TrainerCallback`, and the report of a program that is measured."""

import math
import signal
import sys
import threading
from dataclasses import asdict
from typing import Any

from .checkpoints.checkpoints import Checkpoints
from .exchange import STATISTICS, WEIGHTS
from .runtime import progress
from .runtime.iteration_statistics import IterationStatistics
from .runtime.phase_timer import ITERATION_TIMES

#: First iterations that do not count where a program is measured: MXNet builds the graph in them.
WARM_UP_ITERATIONS = 2
#: Iterations of a measured program with one batch size, before those with the other.
ITERATIONS_PER_SIZE = 4
#: Seconds from one report of a program that is measured to the next.
REPORT_EVERY = 0.25


class TrainerCallback:
    """Base class of what follows a trainer's steps; it keeps no records, `training.run.Run` does.

    Each method gets the `esync.Trainer` that calls it.

    Attributes:
        checkpoints: the checkpoints of the run; None leaves them to the trainer.
        takes_phases: whether it calls `trainer.world.recorder.take()` after every round; else the
            trainer keeps the phases of the newest iterations only.
        evaluates: name of the metric that rank 0 evaluates; "": none is.
    """

    checkpoints: Checkpoints | None = None
    takes_phases = False
    evaluates = ""

    def network_parameters(self) -> list[Any]:
        """Return the parameters of the network that is recorded; none where it is not known."""
        return []

    def setup(self, trainer: Any) -> None:
        """Prepare for a start: the trainer is about to look for the other workers."""

    def joined(self, trainer: Any) -> None:
        """Handle that this worker is among the others, who wait for it before any of them begins."""

    def train_begin(self, trainer: Any) -> None:
        """Handle the beginning: the trainer has found the other workers."""

    def batch_size(self, trainer: Any, batch_size: int) -> int:
        """Return the size of the next batch, where the trainer would choose `batch_size`."""
        return batch_size

    def batch_end(self, trainer: Any) -> None:
        """Handle the end of a step; the time that this takes is not counted as computing."""

    def train_end(self, trainer: Any) -> None:
        """Tell the launcher that the run is finished, if it is: this worker is about to leave."""
        if trainer.finished:
            progress.report_event(progress.FINISHED)

    def train_failed(self, trainer: Any, reason: str) -> None:
        """Handle the failure of the run, which `reason` explains."""

    def close(self) -> None:
        """Handle the failure of this worker, which may be replaced."""


def checkpoints_of(run: TrainerCallback, given: Checkpoints | None) -> Checkpoints | None:
    """Return the checkpoints of a run, or those that were given to its trainer.

    Raises:
        ValueError: both have some.
    """
    if run.checkpoints is not None and given not in (None, run.checkpoints):
        raise ValueError("checkpoints are given to the trainer and to its run: give them to the run only")
    return run.checkpoints or given


class IterationReport(TrainerCallback):
    """Reports how long iterations take, in the place of all records (ESYNC_MEASURE=1).

    A program that asks for its batch size (`Trainer.batch_size`) gets half of it in every second
    group of ITERATIONS_PER_SIZE iterations, whose times are reported as `half`. The first iteration
    after a change does not count.

    The launcher that measures them ends the program by SIGTERM, which ends it as `sys.exit()` does.
    """

    takes_phases = True
    evaluates = "in the run that is planned"  # so that what needs a metric is measured, too

    def __init__(self) -> None:
        self._left_out = WARM_UP_ITERATIONS
        self._statistics = {False: IterationStatistics(), True: IterationStatistics()}  # whether batches are halved →
        self._reported = -math.inf
        self._batch_size: int | None = None  # that the program has asked for
        self._halved = False
        self._iterations = 0

    def batch_size(self, trainer: Any, batch_size: int) -> int:
        """Return the size of the next batch; an emulated device takes proportionally long."""
        self._batch_size = batch_size
        half = batch_size > 1 and self._iterations // ITERATIONS_PER_SIZE % 2
        size = batch_size // 2 if half else batch_size
        trainer.world.device.time_factor = size / batch_size
        return size

    def train_begin(self, trainer: Any) -> None:
        """Let SIGTERM end the program cleanly, unless it does something else with it."""
        main_thread = threading.current_thread() is threading.main_thread()
        if main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    def batch_end(self, trainer: Any) -> None:
        """Count an iteration, and report all so far now and then."""
        phases = trainer.world.recorder.take()
        if self._left_out:
            self._left_out -= 1
            return
        self._iterations += 1
        halved = self._batch_size is not None and 4 * phases["num_samples"] < 3 * self._batch_size
        if halved != self._halved:
            self._halved = halved
            return
        self._statistics[halved] += IterationStatistics.of(phases.get(ITERATION_TIMES, []), phases["num_samples"])
        if trainer.world.device.now() - self._reported >= REPORT_EVERY:
            self._reported = trainer.world.device.now()
            vectors = {WEIGHTS: trainer.replica.weights.size, STATISTICS: trainer.replica.statistics.size}
            full, half = asdict(self._statistics[False]), asdict(self._statistics[True])
            progress.report_event(progress.MEASURED, vectors=vectors, half=half, **full)
