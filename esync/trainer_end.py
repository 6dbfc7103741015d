"""How a program that trains leaves its run: as planned, by an error, or for another to replace it."""

import os
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


class EndingMixin(TrainerStatus):
    """The end of a trainer's part in a run, which is reached once.

    Attributes:
        ends_run: whether `close` ends the run on all workers where it is not finished.
    """

    checkpoints: Checkpoints | None
    _run: TrainerCallback
    _started: bool  # whether the run has begun
    _hooks: ExitHooks  # which call `_end`
    _announced = False  # whether the others know that the run ends
    _closed = False  # whether the trainer has left
    ends_run = False

    def stop(self) -> None:
        """End the run on all workers after the round under way."""
        self._announced = True
        self.algorithm.stop()

    def abort(self, reason: str) -> None:
        """End the run on all workers because this one has failed."""
        self._announced = True
        self.algorithm.abort(reason)
        self._run.train_failed(self, reason)

    def close(self) -> None:
        """Leave the cluster; the others go on without waiting for this worker.

        Where Gluon's Estimator has trained (`esync.EstimatorHandler`), and ended before the run was
        finished, the run ends on all workers instead, as at the end of a with statement.
        """
        if self.ends_run:
            self._end(None)
        else:
            self._leave()

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
        self._end(error)
        return isinstance(error, RunFinished)

    def _check_open(self) -> None:
        """Refuse to go on after the end.

        Raises:
            RuntimeError: the trainer has left the run.
        """
        if self._closed:
            raise RuntimeError("the trainer is closed (trainer.close()): this worker has left the run")

    def _leave(self) -> None:
        """Leave the cluster; the others go on without waiting for this worker."""
        if self._over:
            return
        finished = self._started and self.finished
        if self._started and not (finished or self._announced) and self.workers > 1:
            lost = "nobody evaluates any more, and the final model is that of this round" * (self.rank == 0)
            progress.warn(
                f"worker {self.rank} leaves after round {self.round}, before the run is finished: "
                f"{lost or 'nobody trains on its data any more'} (call stop() before close() to end the run for all "
                "workers)"
            )
        try:
            self._run.train_end(self)
        finally:
            self._closed = True
            self._hooks.remove()
            self.algorithm.close()
            if self.checkpoints is not None:
                self.checkpoints.release()
        if finished:
            progress.report_event(progress.LEFT)

    def _end(self, error: BaseException | None) -> None:
        """Leave the cluster because the program ends, by an error or as planned (None)."""
        if self._over:
            return
        reason = failure(error)
        if self.algorithm.exchange is None or self.finished:
            if reason:
                self._run.train_failed(self, reason)
        elif reason and self._may_be_replaced(error):
            if isinstance(error, Exception):  # and no signal, which says nothing of the program
                progress.report_event(progress.FAILED, reason=reason, exchanges=self.exchanges)
            self._run.close()
            self._closed = True  # without a goodbye: to the others it is dead
            self._hooks.remove()
            return
        else:
            with suppress(ExpectedError):  # another worker has failed at the same time
                self._announce(error, reason)
            self._announced = True
        self._leave()

    def _leave_loop(self) -> NoReturn:
        """End a loop that goes on after the end of the run.

        Raises:
            RunFinished: always.
        """
        progress.warn(
            f"worker {self.rank}: the run is finished, and this program goes on training: its loop ends here, "
            "and so does the program, unless the loop is in `with trainer:`; write `for data, label in "
            "trainer.batches(loader):`, or `if trainer.finished: break` after trainer.step"
        )
        raise RunFinished

    @property
    def _over(self) -> bool:
        """Whether nothing is left to do: the trainer has left, or belongs to the process that forked this one."""
        return self._closed or self._hooks.forked

    def _may_be_replaced(self, error: BaseException | None) -> bool:
        """Return whether another process may succeed in the place of this one, which fails."""
        on_purpose = isinstance(error, (ExpectedError, SystemExit))
        at_fault = error is not None and is_at_fault(type(self.algorithm), error)
        return self._started and SUPERVISED_VARIABLE in os.environ and not on_purpose and not at_fault

    def _announce(self, error: BaseException | None, reason: str) -> None:
        """Tell launcher and workers why this one leaves a run that is not finished."""
        if reason and not getattr(error, "transient", False):
            progress.report_event(progress.OVER, reason=reason, consequence=getattr(error, "consequence", False))
        if isinstance(error, (JobAbortedError, SlotLostError)):  # which the others know
            self._run.train_failed(self, reason)
        elif reason:
            self.abort(f"worker {self.rank}: {reason}")
        else:
            progress.warn(
                f"worker {self.rank} ends before the run is finished: all workers end after the round under "
                "way (esync.Limits tells all of them when to end; close() in a loop of your own leaves without ending "
                "the run)"
            )
            self.stop()
