"""The training loop of the worker program: batches in, rounds out, until the run is over."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .data import Batches
from .errors import ExpectedError
from .measure import COMPUTE, GET_BATCH, Recorder

if TYPE_CHECKING:  # the loop itself needs no MXNet: a simulation without gradients runs it too
    from .trainer import Trainer


class DivergedError(ExpectedError):
    """The loss is no longer a number."""


class Rounds(Protocol):
    """What is done about finished rounds: logs, progress, evaluation."""

    def done(self, trainer: "Trainer") -> None:
        """A round is over."""

    def poll(self, trainer: "Trainer") -> None:
        """Called between iterations; must not wait."""

    def end(self, trainer: "Trainer") -> None:
        """The run is over."""


class Iteration:
    """One iteration: a batch, forward and backward; the gradients will be found in the network's parameters.

    Args:
        net: the network.
        loss: a Gluon loss of (outputs, labels), one value per sample.
        batches: the stream of this worker's batches.
        size: height and width of the network's input.
        context: the MXNet device.

    Attributes:
        batches: as given; may be exchanged for another stream between iterations.
    """

    def __init__(self, net: Any, loss: Callable[[Any, Any], Any], batches: Batches, size: int, context: Any) -> None:
        self._net, self._loss, self.batches = net, loss, batches
        self._size, self._context = size, context

    def run(self, recorder: Recorder) -> int:
        """Do it; the number of samples.

        Raises:
            DivergedError: the loss is NaN or infinite.
        """
        from .data.resize import resize
        from .engine import mx

        with recorder.phase(GET_BATCH):
            self._before = self.batches.state()
            images, labels = next(self.batches)
            inputs = resize(mx.nd.array(images, ctx=self._context), self._size)
            targets = mx.nd.array(labels, ctx=self._context)
        with recorder.phase(COMPUTE):
            with mx.autograd.record():
                outputs = self._net(inputs)
                # Inception has auxiliary classifiers behind its first output.
                losses = self._loss(outputs[0] if isinstance(outputs, (list, tuple)) else outputs, targets)
            losses.backward()
            values = losses.asnumpy()  # is there before the backward pass is done, which goes on meanwhile
        if not np.isfinite(values).all():
            raise DivergedError(
                f"the loss is {'NaN' if np.isnan(values).any() else 'infinite'}: the training has diverged; try a "
                "smaller learning rate"
            )
        return len(labels)

    def give_back(self) -> None:
        """The batch of the last `run` has not been used: the next one gets it."""
        self.batches.restore(self._before)


def warm_up(trainer: "Trainer", iteration: Iteration) -> None:
    """Build the network's graph, then measure one iteration; model and optimizer stay as they were."""
    for _ in range(2):
        with trainer.trial():
            trainer.step(iteration.run(trainer.world.recorder))
    trainer.world.recorder.take()


def train(
    trainer: "Trainer",
    iteration: Iteration,
    rounds: Rounds,
    batches: Callable[[tuple[int, ...]], Batches] | None = None,
) -> None:
    """Train until the run is over on all workers; the trainer has been started.

    Args:
        trainer: of this worker.
        iteration: what is done again and again.
        rounds: what is done about finished rounds.
        batches: this worker's batches, given the ranks that are there, where they depend on those.

    Raises:
        DivergedError: see `Iteration.run`.
        JobAbortedError: another worker has ended the run because it failed.
    """
    recorder, members = trainer.world.recorder, trainer.members
    while not trainer.finished:
        trainer.step(iteration.run(recorder))
        if trainer.abandoned:
            iteration.give_back()
        if trainer.exchanged:
            rounds.done(trainer)
            if batches is not None and trainer.members != members:
                members = trainer.members
                iteration.batches = batches(members)
        rounds.poll(trainer)
    rounds.end(trainer)
