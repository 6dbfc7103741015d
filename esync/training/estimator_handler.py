"""esync.EstimatorHandler: mxnet.gluon.contrib.estimator.Estimator with an esync.Trainer."""

from contextlib import ExitStack
from typing import Any

from ..runtime.logged_values import LOSS
from ..runtime.mxnet_import import mx
from ..trainer import Trainer


class EstimatorHandler(
    mx.gluon.contrib.estimator.GradientUpdateHandler,
    mx.gluon.contrib.estimator.TrainBegin,
    mx.gluon.contrib.estimator.EpochBegin,
    mx.gluon.contrib.estimator.EpochEnd,
    mx.gluon.contrib.estimator.TrainEnd,
):
    """Lets Gluon's Estimator train with an `esync.Trainer` until the run is over.

    It takes the place of Gluon's GradientUpdateHandler: `estimator.fit(loader, epochs=…,
    event_handlers=[esync.EstimatorHandler()])`; the estimator's trainer is an `esync.Trainer`. `fit`
    returns when the run is over (`trainer.finished`), when this worker has gone through its loader
    `epochs` times, or when another handler stops it, whichever comes first. Where that is before
    the end of the run, another `fit` may follow, and `trainer.close()` then ends the run on all
    workers after the round under way. What other handlers do between two epochs, such as Gluon's
    ValidationHandler, counts as a pause (`trainer.paused`); loading a batch counts as computing.
    The loss of each batch is in the logs. Where it is a mean, the labels tell how many samples a
    step has.

    Args:
        priority: as in GradientUpdateHandler: the step comes before other handlers of the batch.
    """

    def __init__(self, priority: int = -2000) -> None:
        super().__init__(priority)
        self._pause = ExitStack()

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Check that there is something to do for this handler.

        Raises:
            TypeError: the estimator's trainer is not an `esync.Trainer`.
        """
        if not isinstance(estimator.trainer, Trainer):
            raise TypeError(
                f"esync.EstimatorHandler needs Estimator(…, trainer=esync.Trainer(…)), but the trainer is a "
                f"{type(estimator.trainer).__module__}.{type(estimator.trainer).__name__}"
            )
        estimator.trainer.ends_run = True

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        """Take a step with the batch; return whether the run is over."""
        trainer = estimator.trainer
        if not trainer.finished:  # a resumed run may have nothing left to do
            losses = kwargs["loss"] if isinstance(kwargs["loss"], list) else [kwargs["loss"]]
            name = LOSS if trainer._run.evaluates != LOSS else f"train_{LOSS}"
            trainer.log(**{name: sum(batch_losses.mean() for batch_losses in losses) / len(losses)})
            size = sum(_length(batch_losses) for batch_losses in losses)  # as GradientUpdateHandler has it
            trainer.step(size, samples=size if size > len(losses) else _length(kwargs["label"]))
        return trainer.finished

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        """Pause until the next epoch; return whether the run is over."""
        self._pause.enter_context(estimator.trainer.paused())
        return estimator.trainer.finished

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """End the pause."""
        self._pause.close()

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """End the pause."""
        self._pause.close()


def _length(values: Any) -> int:
    """Return the number of samples of an array, or of the first one in a list, which holds the whole batch."""
    while isinstance(values, (list, tuple)):
        values = values[0]
    return int(values.shape[0]) if values.shape else 1
