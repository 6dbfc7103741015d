"""Pass evaluations to an optimizer's schedule that lowers the rate on a plateau."""

from ..runtime.progress import ProgressReporter
from ..trainer import Trainer
from .callbacks import Callback, Evaluated


class PlateauDetection(Callback):
    """Passes each evaluation to the optimizer's schedule, if that is a `ReduceOnPlateau`.

    Args:
        trainer: the trainer with the optimizer.
        reporter: prints that the learning rate falls.
    """

    def __init__(self, trainer: Trainer, reporter: ProgressReporter) -> None:
        self._trainer, self._reporter = trainer, reporter

    def accuracy(self, evaluated: Evaluated) -> None:
        """Pass the metric on."""
        schedule = self._trainer._plateau
        if schedule is not None and (text := schedule.observe(evaluated.accuracy, evaluated.metric)):
            self._reporter.print(text)
