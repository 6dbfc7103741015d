"""Training loop of the worker program: train on batches until the run is over."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..data import Batches, Partition, redistribute, share_of
from ..runtime.errors import ExpectedError
from ..runtime.logged_values import LOSS
from ..runtime.phase_timer import COMPUTE, GET_BATCH, PhaseTimer

if TYPE_CHECKING:  # a simulation without gradients runs this loop without MXNet
    from ..trainer import Trainer

log = logging.getLogger(__name__)


#: Part of all workers' error message for a diverged run.
DIVERGED = "the training has diverged"


class DivergedError(ExpectedError):
    """Raised when the loss is no longer a finite number."""


class RoundObserver(Protocol):
    """Observer of finished rounds, for logs, progress and evaluation."""

    def done(self, trainer: "Trainer") -> None:
        """Handle a finished round."""

    def poll(self, trainer: "Trainer") -> None:
        """Do periodic work between iterations, without waiting."""

    def end(self, trainer: "Trainer") -> None:
        """Handle the end of the run."""


class Iteration:
    """One iteration: load a batch, run forward and backward.

    The gradients are then in the network's parameters.

    Args:
        net: the network.
        loss: a Gluon loss of (outputs, labels), one value per sample.
        batches: the stream of this worker's batches.
        size: height and width of the network's input; None: those of the images.
        context: the MXNet device.
        begin: called before each iteration, for instance to seed its random numbers.

    Attributes:
        batches: the stream of batches, which may be replaced between iterations.
    """

    def __init__(
        self,
        net: Any,
        loss: Callable[[Any, Any], Any],
        batches: Batches,
        size: int | None,
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
                # Inception has outputs of auxiliary classifiers after the first one.
                losses = self._loss(outputs[0] if isinstance(outputs, (list, tuple)) else outputs, targets)
            losses.backward()
            values = losses.asnumpy()  # available before the end of the backward pass, which runs in the background
        if not np.isfinite(values).all():
            raise DivergedError(
                f"the loss is {'NaN' if np.isnan(values).any() else 'infinite'}: {DIVERGED}; try a "
                "smaller learning rate"
            )
        recorder.log(LOSS, float(values.mean()))
        return len(labels)

    def put_back_batch(self) -> None:
        """Put back the unused batch of the last `run`, so that the next iteration gets it."""
        self.batches.restore(self._before)

    def state(self) -> dict[str, int]:
        """Return the position in the stream of batches, for a checkpoint."""
        return {**self.batches.state(), "samples": self.batches.samples}

    def restore(self, state: Mapping[str, int]) -> None:
        """Restore a position; if the share has another size, the batches restart."""
        if state["samples"] == self.batches.samples:
            self.batches.restore(state)
        else:
            log.warning("this worker's share was different at the checkpoint: its batches begin anew")


class PartitionedData:
    """This worker's share of the training data, which changes with the participating workers.

    Args:
        dealt: the shares of all workers.
        seed: seed of the order in which a share is divided among others.
        absent_too: whether the shares of absent workers are divided among the present ones
            (--redistribute); those of workers that are left out always are.
        batches: returns the stream of batches of a share.
        changed: called with the shares of all workers where they have changed; those of workers
            whose samples have been dealt to others are empty.
    """

    def __init__(
        self,
        dealt: Partition,
        seed: int,
        absent_too: bool,
        batches: Callable[[np.ndarray], Batches],
        changed: Callable[[Sequence[np.ndarray]], None] | None = None,
    ) -> None:
        self._dealt, self._seed, self._absent_too, self._batches = dealt, seed, absent_too, batches
        self._changed = changed
        self._last_shares: tuple[tuple[int, ...], tuple[int, ...]] = tuple(range(len(dealt.shares))), ()

    def batches(self, trainer: "Trainer") -> Batches | None:
        """Return the batches of this worker's share from its start; None if it has not changed."""
        members = trainer.members if self._absent_too else tuple(range(len(self._dealt.shares)))
        state = members, trainer.resting
        if state == self._last_shares:
            return None
        self._last_shares = state
        if self._changed is not None:
            self._changed(redistribute(self._dealt, set(members) - set(trainer.resting), self._seed).shares)
        share = share_of(trainer.rank, self._dealt, *state, self._seed)
        away = sorted({*range(len(self._dealt.shares))} - set(members) | set(trainer.resting))
        whose = f"those of worker {', '.join(map(str, away))} are" if away else "none is"
        log.info("%d samples are this worker's share from now on: %s dealt to others", len(share), whose)
        return self._batches(share)


def warm_up(trainer: "Trainer", iteration: Iteration) -> None:
    """Build the network's graph, then measure one iteration, without changing model and optimizer."""
    for _ in range(2):
        with trainer.trial():
            trainer.step(iteration.run(trainer.world.recorder))
    trainer.world.recorder.take()


def train(
    trainer: "Trainer",
    iteration: Iteration,
    rounds: RoundObserver | None = None,
    data: PartitionedData | None = None,
) -> None:
    """Train with a started trainer until the run is over on all workers.

    Args:
        trainer: this worker's trainer.
        iteration: the iteration to repeat.
        rounds: observes finished rounds; None if the trainer has a `Run` that does.
        data: this worker's share of the data; None if its batches stay as they are.

    Raises:
        DivergedError: see `Iteration.run`.
        JobAbortedError: another worker has ended the run because it failed.
    """
    recorder = trainer.world.recorder
    trainer.world.device.begin_iteration()  # dealing the data since the start was no part of it
    while not trainer.finished:
        samples = iteration.run(recorder)
        trainer.step(samples, samples=samples)
        if trainer.abandoned:
            iteration.put_back_batch()
        if trainer.exchanged:
            if rounds is not None:
                rounds.done(trainer)
            if data is not None and (batches := data.batches(trainer)) is not None:
                iteration.batches = batches
        if rounds is not None:
            rounds.poll(trainer)
    if rounds is not None:
        rounds.end(trainer)
