"""Training loop of the worker program: train on batches until the run is over."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..data import Batches
from ..runtime.errors import ExpectedError
from ..runtime.phase_timer import COMPUTE, GET_BATCH, PhaseTimer

if TYPE_CHECKING:  # the loop itself needs no MXNet: a simulation without gradients runs it too
    from ..checkpoints.checkpoints import Checkpoints
    from ..trainer import Trainer

log = logging.getLogger(__name__)


#: Stands in the reason for which a diverged run ends, on all workers.
DIVERGED = "the training has diverged"


class DivergedError(ExpectedError):
    """The loss is no longer a number."""


class RoundObserver(Protocol):
    """Observer of finished rounds, for logs, progress and evaluation."""

    def done(self, trainer: "Trainer") -> None:
        """Take a round that is over."""

    def poll(self, trainer: "Trainer") -> None:
        """Do what is due between iterations; must not wait."""

    def end(self, trainer: "Trainer") -> None:
        """Take the end of the run."""


class Iteration:
    """One iteration: a batch, forward and backward; the gradients will be found in the network's parameters.

    Args:
        net: the network.
        loss: a Gluon loss of (outputs, labels), one value per sample.
        batches: the stream of this worker's batches.
        size: height and width of the network's input.
        context: the MXNet device.
        begin: called before each iteration; seeds the random numbers that it draws, for instance.

    Attributes:
        batches: as given; may be exchanged for another stream between iterations.
    """

    def __init__(
        self,
        net: Any,
        loss: Callable[[Any, Any], Any],
        batches: Batches,
        size: int,
        context: Any,
        begin: Callable[[], None] | None = None,
    ) -> None:
        self._net, self._loss, self.batches = net, loss, batches
        self._size, self._context, self._begin = size, context, begin

    def run(self, recorder: PhaseTimer) -> int:
        """Run the iteration; return the number of samples.

        Raises:
            DivergedError: the loss is NaN or infinite.
        """
        from ..models.networks import resize
        from ..runtime.mxnet_import import mx

        if self._begin is not None:
            with recorder.phase(COMPUTE):
                self._begin()
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
                f"the loss is {'NaN' if np.isnan(values).any() else 'infinite'}: {DIVERGED}; try a "
                "smaller learning rate"
            )
        recorder.loss = float(values.mean())
        return len(labels)

    def give_back(self) -> None:
        """Put back the batch of the last `run`, which has not been used; the next iteration gets it."""
        self.batches.restore(self._before)

    def state(self) -> dict[str, int]:
        """Return the position in the stream of batches, for a checkpoint."""
        return {**self.batches.state(), "samples": self.batches.samples}

    def restore(self, state: Mapping[str, int]) -> None:
        """Restore a position; with a share of another size, the batches begin anew."""
        if state["samples"] == self.batches.samples:
            self.batches.restore(state)
        else:
            log.warning("the share of this worker was another one at the checkpoint: its batches begin anew")


def warm_up(trainer: "Trainer", iteration: Iteration) -> None:
    """Build the network's graph, then measure one iteration; model and optimizer stay as they were."""
    for _ in range(2):
        with trainer.trial():
            trainer.step(iteration.run(trainer.world.recorder))
    trainer.world.recorder.take()


def train(
    trainer: "Trainer",
    iteration: Iteration,
    rounds: RoundObserver,
    batches: Callable[[tuple[int, ...]], Batches] | None = None,
    checkpoints: "Checkpoints | None" = None,
) -> None:
    """Train until the run is over on all workers; the trainer has been started.

    Args:
        trainer: of this worker.
        iteration: what is done again and again.
        rounds: what is done about finished rounds.
        batches: this worker's batches, given the ranks that are there, where they depend on those.
        checkpoints: those of the trainer, where there are any.

    Raises:
        DivergedError: see `Iteration.run`.
        JobAbortedError: another worker has ended the run because it failed.
    """
    recorder, members = trainer.world.recorder, trainer.members
    trainer.world.device.begin_iteration()  # setting up logs and evaluation since the start was no part of it
    while not trainer.finished:
        trainer.step(iteration.run(recorder))
        if trainer.abandoned:
            iteration.give_back()
        if trainer.exchanged:
            rounds.done(trainer)
            if checkpoints is not None:
                checkpoints.save_if_due()
            if batches is not None and trainer.members != members:
                members = trainer.members
                iteration.batches = batches(members)
        rounds.poll(trainer)
    if checkpoints is not None:
        checkpoints.save()  # the run can be made longer later
    rounds.end(trainer)
