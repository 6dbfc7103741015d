"""The optimizers of a trainer that has several: their local steps, and their parts of an exchange."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .exchange import WEIGHTS
from .gluon.optimizer_trainer import OptimizerTrainer
from .gluon.parameter_kinds import distinct
from .gluon.replica import Replica
from .gluon.trial import undone

log = logging.getLogger(__name__)


class FurtherTrainer(OptimizerTrainer):
    """A gluon.Trainer of some of the parameters, which are exchanged with those of an esync.Trainer.

    It is returned by `Trainer.add_optimizer`. Its `step` belongs to the iteration that the next
    `step` of that trainer ends.

    Attributes:
        steps: calls of `step` so far in this process.

    Args:
        main: the `esync.Trainer`.
        params: as for gluon.Trainer; none of them is another optimizer's.
        optimizer: likewise.
        optimizer_params: likewise.

    Raises:
        ValueError: an argument cannot be used, or the algorithm takes one optimizer only.
    """

    def __init__(self, main: Any, params: Any, optimizer: Any, optimizer_params: dict[str, Any] | None) -> None:
        algorithm = main.algorithm
        if reason := algorithm.needs_one_optimizer:
            raise ValueError(
                f"add_optimizer: algorithm {algorithm.name!r} {reason}: use 'esync', 'local-sgd' or 'sync' without "
                "compression, or train all parameters with one optimizer"
            )
        if any(optimizer is other.optimizer for other in main.optimizers):
            raise ValueError(
                "add_optimizer: the optimizer is another one's of this trainer, whose counts of steps would mix with "
                "this one's: make an optimizer for each"
            )
        super().__init__(distinct(params), optimizer, optimizer_params, algorithm, main.gradient_scale, None)
        known = {id(parameter) for parameter in main.trained_parameters}
        if shared := next((parameter for parameter in self._params if id(parameter) in known), None):
            raise ValueError(
                f"add_optimizer: parameter {shared.name} has an optimizer already, whose steps would mix with this "
                "one's: give each optimizer parameters of its own"
            )
        if self._plateau is not None:
            raise ValueError(
                "add_optimizer: ReduceOnPlateau is a schedule of the trainer's own optimizer: give it to that one, or "
                "call set_learning_rate"
            )
        self._main = main
        self.steps = 0
        self.vector = f"{WEIGHTS} of optimizer {len(main.optimizers) + 1}"

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Take a step with the gradients of this optimizer's parameters.

        In mode sync, the gradients of all workers are averaged at once, in a round of its own. With
        local iterations the step is this worker's, and its effect part of the next exchange.

        Args:
            batch_size: what gradients are divided by; the samples are counted by the trainer's step.
            ignore_stale_grad: as in gluon.Trainer.

        Raises:
            BatchSizeError, JobAbortedError, ValueError: as `esync.Trainer.step`.
        """
        self.steps += 1
        self._main.step_optimizer(self, batch_size, ignore_stale_grad)

    def _follow_progress(self) -> None:
        self.dataset_size = self._main.dataset_size
        super()._follow_progress()


class SeveralOptimizers(OptimizerTrainer):
    """An `esync.Trainer`'s own optimizer, and the further ones that are added to it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._further: list[FurtherTrainer] = []
        self._on_trial = False

    def add_optimizer(
        self, params: Any, optimizer: Any, optimizer_params: dict[str, Any] | None = None
    ) -> FurtherTrainer:
        """Add an optimizer of further parameters, which are exchanged together with this trainer's.

        Call it before the first step, in the same order on all workers. A step of this trainer ends
        an iteration, so the further optimizers step before it: a GAN's discriminator is added to the
        trainer of its generator.

        Args:
            params: as for gluon.Trainer; none of them is another optimizer's.
            optimizer: likewise.
            optimizer_params: likewise.

        Returns:
            What reads like a gluon.Trainer of these parameters.

        Raises:
            ValueError: an argument cannot be used, or the algorithm takes one optimizer only.
        """
        if self._started:
            raise ValueError("add_optimizer: the trainer has started; add all optimizers before its first step")
        self._further.append(FurtherTrainer(self, params, optimizer, optimizer_params))
        return self._further[-1]

    @property
    def optimizers(self) -> list[OptimizerTrainer]:
        """This trainer, and the further optimizers in the order of `add_optimizer`."""
        return [self, *self._further]

    @property
    def trained_parameters(self) -> list[Any]:
        """The parameters of all optimizers."""
        groups = [group for optimizer in self.optimizers for group in optimizer.vectors.values()]
        return [parameter for group in groups for parameter in group]

    @contextmanager
    def undone(self, others: Sequence[Any]) -> Iterator[None]:
        """Undo what an iteration within a with statement changes: weights, statistics, optimizers' states.

        Args:
            others: further parameters of the network.
        """
        # Refuses parameters without a shape, whose values could not be kept.
        Replica(self.trained_parameters, self._local_step)
        owners = [owner for optimizer in self.optimizers for owner in optimizer._state_owners]
        scale, self._on_trial = self._scale, True
        try:
            with undone([*self.trained_parameters, *others], owners):
                yield
        finally:
            self._on_trial, self._scale = False, scale

    def check_order(self) -> None:
        """Warn in the first iteration if this trainer's step comes before those of further optimizers."""
        if self._further and not any(further.steps for further in self._further):
            log.warning(
                "the trainer's step comes before those of the optimizers added to it, and ends the iteration: their "
                "last step of the run is left out, and a checkpoint does not have that of its round (step them first)"
            )

    def check_plateau(self, evaluates: str) -> None:
        """Check that a schedule that follows the metric can do so.

        Args:
            evaluates: name of the metric that the run evaluates; "": none.

        Raises:
            ValueError: it cannot.
        """
        if self._plateau is not None:
            self._plateau.check(evaluates)

    @property
    def scalars(self) -> dict[str, float]:
        """What exchanges carry beside the algorithm's own scalars."""
        return self._plateau.scalars if self._plateau is not None else {}

    def _master(self, parameter: Any) -> Any:
        # A further optimizer keeps the float32 copies of its own parameters.
        owner = next((further for further in self._further if further.has(parameter)), None)
        return super()._master(parameter) if owner is None else owner._master(parameter)

    @property
    def sections(self) -> dict[str, int]:
        """Name of each vector of weights → number of its parameters; see `Replica`."""
        return {name: len(group) for optimizer in self.optimizers for name, group in optimizer.vectors.items()}
