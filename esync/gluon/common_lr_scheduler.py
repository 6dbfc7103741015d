"""Learning rate schedules that are at the same place on all workers, whatever steps each has taken.

Gluon's optimizer asks its lr_scheduler with the number of its own updates. On unequal devices these
numbers differ, and so would the rates.
"""

import copy
import math
from typing import Any, Literal, get_args

from ..exchange import Result
from ..runtime.mxnet_import import mx

#: What a schedule can count; see `CommonLRScheduler`.
ScheduleUnit = Literal["samples", "epochs", "rounds", "seconds"]

#: Schedules of Gluon that return the last computed rate, not the final one, for numbers past their
#: end.
_WITH_AN_END = (mx.lr_scheduler.PolyScheduler, mx.lr_scheduler.CosineScheduler)

GluonLRScheduler: Any = mx.lr_scheduler.LRScheduler


class _ScheduleCopy:
    """A copy of a schedule, with its last answer.

    Checkpoints save numbers and texts among a scheduler's attributes. This is neither, so a resumed
    run uses the schedule of its program, at the progress of the run.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler, self.position, self.rate = copy.deepcopy(scheduler), -math.inf, 0.0


class CommonLRScheduler(GluonLRScheduler):
    """Gives all workers the same learning rate, from what they have done together.

        cosine = mx.lr_scheduler.CosineScheduler(30, base_lr=0.1)
        settings = {"lr_scheduler": esync.CommonLRScheduler(cosine, by="epochs")}
        trainer = esync.Trainer(params, "sgd", settings, dataset_size=len(dataset))

    A schedule that is given to the optimizer as it is counts the worker's own updates. Where the
    workers take different numbers of local steps, as with algorithm "esync" and in asynchronous
    modes, each would have another rate. This one asks the schedule with the progress of all workers
    together at this worker's last exchange. So in synchronous modes the rate is the same on all of
    them, stays as it is until the next exchange, and goes on at the same place after a resume and
    on a replacement. In asynchronous modes, whose workers exchange one by one, the progress is that
    in the servers' last answer to this worker: rates differ by what the others have done since.

    The optimizer's own counts of updates, which Adam's bias correction needs, stay as they are.

    Args:
        scheduler: one of mx.lr_scheduler, or any function of what `by` counts that returns the
            rate. A copy of it is asked. Its steps, max_update and warmup_steps are in the unit
            that `by` names.
        by: what is counted, from the beginning of the run on, over all workers: "samples",
            "epochs" (samples ÷ `dataset_size` of the trainer; fractions count), "rounds" (commits ÷
            workers in asynchronous modes) or "seconds". As Gluon's first update is number 1, so is
            the first sample, and the first round; in epochs, the first sample is 1 ÷ dataset_size.

    Raises:
        ValueError: `by` is none of these, or `scheduler` cannot be called.
    """

    def __init__(self, scheduler: Any, by: ScheduleUnit) -> None:
        if by not in get_args(ScheduleUnit):
            raise ValueError(f"by={by!r}: it should be one of {', '.join(get_args(ScheduleUnit))}")
        if not callable(scheduler) or isinstance(scheduler, (type, CommonLRScheduler)):
            raise ValueError(
                f"scheduler is {scheduler!r}, but should be one of mx.lr_scheduler, or a function of a number that "
                "returns the learning rate"
            )
        self._by = by
        self._scheduler = copy.deepcopy(scheduler)
        self._copy = _ScheduleCopy(self._scheduler)
        self._position: float | None = None

    def __call__(self, num_update: int) -> float:
        """Return the rate at the progress of the last exchange.

        Args:
            num_update: updates of this worker, which are ignored.

        Raises:
            ValueError: the progress is not known, or the schedule's answer is no finite number.
        """
        position = self._position
        if position is None:
            raise ValueError(
                'a schedule by="epochs" needs the size of the training set: esync.Trainer(…, dataset_size=len(dataset))'
                if self._by == "epochs"
                else f'a schedule by="{self._by}" needs an esync.Trainer, which tells it the progress of all workers'
            )
        if isinstance(self._scheduler, _WITH_AN_END):
            position = min(position, self._scheduler.max_update)
        if position < self._copy.position:  # schedules that remember what they were asked cannot go back
            self._copy = _ScheduleCopy(self._scheduler)
        current = self._copy
        if position != current.position:
            rate = float(current.scheduler(position))
            if not math.isfinite(rate):
                raise ValueError(f"the learning rate schedule has answered {rate} at {self._by} {position:g}")
            current.position, current.rate = position, rate
        return current.rate

    def follow(self, result: Result, dataset_size: int | None) -> None:
        """Set the progress of the last exchange; `esync.Trainer` calls it before each step.

        Args:
            result: of the last exchange.
            dataset_size: samples of an epoch; None: not known.
        """
        if self._by == "rounds":
            self._position = result.round + 1
        elif self._by == "seconds":
            self._position = result.exchanged_at
        elif self._by == "samples":
            self._position = result.samples + 1
        else:
            self._position = (result.samples + 1) / dataset_size if dataset_size is not None else None

    @property
    def base_lr(self) -> Any:
        """The schedule's base_lr, which the optimizer sets where it has a learning_rate, too."""
        return getattr(self._scheduler, "base_lr", None)

    @base_lr.setter
    def base_lr(self, rate: float) -> None:
        if hasattr(self._scheduler, "base_lr"):  # a function has none
            self._scheduler.base_lr = rate
            self._copy = _ScheduleCopy(self._scheduler)


def unequal_rates_warning(scheduler: Any, algorithm: str) -> str:
    """Return the warning of a schedule under an algorithm whose workers' updates differ."""
    return (
        f"the workers of algorithm {algorithm!r} take different numbers of steps, and a learning rate schedule "
        f"({type(scheduler).__name__}) counts each worker's own, so that their learning rates will differ: "
        'esync.CommonLRScheduler(schedule, by="samples") gives all of them the same'
    )
