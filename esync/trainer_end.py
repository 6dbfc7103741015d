"""How a program that trains leaves its run: as planned, by an error, or for another to replace it."""

import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

from typing_extensions import Self

from .algorithms.loading import is_at_fault
from .checkpoints.checkpoints import Checkpoints
from .exchange import JobAbortedError, SlotLostError
from .runtime import progress
from .runtime.environment import SUPERVISED_VARIABLE
from .runtime.errors import ExpectedError
from .runtime.exit_hooks import ExitHooks, RunFinished, failure
from .trainer_callbacks import TrainerCallback
from .trainer_status import TrainerStatus


class TrainerEnd:
    """The end of a trainer's part in a run, which is reached once.

    Args:
        trainer: the trainer, which goes to the callbacks of its run.
        run: what records the run.
        checkpoints: those of the run.
        started: tells whether the trainer takes part in the run.

    Attributes:
        closed: whether it has left.
    """

    def __init__(
        self,
        trainer: TrainerStatus,
        run: TrainerCallback,
        checkpoints: Checkpoints | None,
        started: Callable[[], bool],
    ) -> None:
        self._trainer, self._run, self._checkpoints = trainer, run, checkpoints
        self._announced = False  # whether the others know that the run ends
        self._hooks = ExitHooks(self.end)
        self._started = started
        self.closed = False

    def watch(self) -> None:
        """Call `end` when the program ends."""
        self._hooks.install()

    def go_first(self) -> None:
        """Call `end` before other hooks that callbacks have registered in `train_begin`."""
        self._hooks.go_first()

    def check_open(self) -> None:
        """Refuse to go on after the end.

        Raises:
            RuntimeError: the trainer has left the run.
        """
        if self.closed:
            raise RuntimeError("the trainer is closed (trainer.close()): this worker has left the run")

    def stop(self) -> None:
        """End the run on all workers after the round under way."""
        self._announced = True
        self._trainer.algorithm.stop()

    def abort(self, reason: str) -> None:
        """End the run on all workers because this one has failed."""
        self._announced = True
        self._trainer.algorithm.abort(reason)
        self._run.train_failed(self._trainer, reason)

    def close(self) -> None:
        """Leave the cluster; the others go on without waiting for this worker."""
        if self._over:
            return
        trainer = self._trainer
        finished = self._started() and trainer.finished
        if self._started() and not (finished or self._announced) and trainer.workers > 1:
            lost = "nobody evaluates any more, and the final model is that of this round" * (trainer.rank == 0)
            progress.warn(
                f"worker {trainer.rank} leaves after round {trainer.round}, before the run is finished: "
                f"{lost or 'nobody trains on its data any more'} (call stop() before close() to end the run for all "
                "workers)"
            )
        try:
            self._run.train_end(trainer)
        finally:
            self.closed = True
            self._hooks.remove()
            trainer.algorithm.close()
            if self._checkpoints is not None:
                self._checkpoints.release()
        if finished:
            progress.report_event(progress.LEFT)

    def end(self, error: BaseException | None) -> None:
        """Leave the cluster because the program ends, by an error or as planned (None)."""
        if self._over:
            return
        trainer, reason = self._trainer, failure(error)
        if trainer.algorithm.exchange is None or trainer.finished:
            if reason:
                self._run.train_failed(trainer, reason)
        elif reason and self._may_be_replaced(error):
            if isinstance(error, Exception):  # and no signal, which says nothing of the program
                progress.report_event(progress.FAILED, reason=reason, exchanges=trainer.exchanges)
            self._run.close()
            self.closed = True  # without a goodbye: to the others it is dead
            self._hooks.remove()
            return
        else:
            with suppress(ExpectedError):  # another worker has failed at the same time
                self._announce(error, reason)
            self._announced = True
        self.close()

    def leave_loop(self) -> NoReturn:
        """End a loop that goes on after the end of the run.

        Raises:
            RunFinished: always.
        """
        progress.warn(
            f"worker {self._trainer.rank}: the run is finished, and this program goes on training: its loop ends here, "
            "and so does the program, unless the loop is in `with trainer:`; write `for data, label in "
            "trainer.batches(loader):`, or `if trainer.finished: break` after trainer.step"
        )
        raise RunFinished

    @property
    def _over(self) -> bool:
        """Whether nothing is left to do: the trainer has left, or belongs to the process that forked this one."""
        return self.closed or self._hooks.forked

    def _may_be_replaced(self, error: BaseException | None) -> bool:
        """Return whether another process may succeed in the place of this one, which fails."""
        on_purpose = isinstance(error, (ExpectedError, SystemExit))
        at_fault = error is not None and is_at_fault(type(self._trainer.algorithm), error)
        return self._started() and SUPERVISED_VARIABLE in os.environ and not on_purpose and not at_fault

    def _announce(self, error: BaseException | None, reason: str) -> None:
        """Tell launcher and workers why this one leaves a run that is not finished."""
        if reason and not getattr(error, "transient", False):
            progress.report_event(progress.OVER, reason=reason, consequence=getattr(error, "consequence", False))
        if isinstance(error, (JobAbortedError, SlotLostError)):  # which the others know
            self._run.train_failed(self._trainer, reason)
        elif reason:
            self.abort(f"worker {self._trainer.rank}: {reason}")
        else:
            progress.warn(
                f"worker {self._trainer.rank} ends before the run is finished: all workers end after the round under "
                "way (esync.Limits tells all of them when to end; close() in a loop of your own leaves without ending "
                "the run)"
            )
            self.stop()


class EndingMixin:
    """The methods by which a program ends its part in a run.

    Attributes:
        ends_run: whether `close` ends the run on all workers where it is not finished.
    """

    ends_run: bool
    _end: TrainerEnd

    def stop(self) -> None:
        """End the run on all workers after the round under way."""
        self._end.stop()

    def abort(self, reason: str) -> None:
        """End the run on all workers because this one has failed."""
        self._end.abort(reason)

    def close(self) -> None:
        """Leave the cluster; the others go on without waiting for this worker.

        Where Gluon's Estimator has trained (`esync.EstimatorHandler`), and ended before the run was
        finished, the run ends on all workers instead, as at the end of a with statement.
        """
        if self.ends_run:
            self._end.end(None)
        else:
            self._end.close()

    def __enter__(self) -> Self:
        """Return the trainer, which leaves the cluster at the end of the with statement."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Leave the cluster; if the run is not finished, end it for all workers.

        After an error it is ended by `abort`, else by `stop`. If a loop continues after the run
        has finished, `RunFinished` ends it, and the program resumes after the with statement.

        A program without a with statement does the same when it ends.
        """
        self._end.end(error)
        return isinstance(error, RunFinished)
