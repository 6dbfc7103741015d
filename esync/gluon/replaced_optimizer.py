"""A gluon.Trainer that notices when a program replaces its optimizer, or the optimizer's state.

Programs for Gluon do so by `trainer._init_optimizer(…)`, `trainer._optimizer = …` or `load_states`.
"""

from collections.abc import Collection
from os import PathLike
from typing import Any

from ..algorithms.base import Algorithm
from ..rules import PLAIN_SGD, RuleChoice
from ..runtime.errors import ExpectedError
from .optimizer_to_rule import WAY_OUT
from .optimizers import SGD
from .trainer_interface import GluonTrainer


class ReplacedOptimizerError(ExpectedError, ValueError):
    """A program has replaced an optimizer, or its state, where the algorithm cannot follow."""


class OptimizerTrainer(GluonTrainer):
    """The part of `esync.Trainer` that follows replaced optimizers, or refuses them.

    Attributes:
        algorithm: the trainer's.
    """

    algorithm: Algorithm
    _fitted: Any = None  # the optimizer that has been fitted to the algorithm last

    def save_states(self, fname: str | PathLike[str]) -> None:
        """Write the optimizer's state to a file.

        Raises:
            ReplacedOptimizerError: the algorithm sends gradients, so that this worker has no state.
        """
        self._check_has_state("save_states")
        super().save_states(fname)

    def load_states(self, fname: str | PathLike[str]) -> None:
        """Read the state that `save_states` has written, with the optimizer of that time.

        Raises:
            ReplacedOptimizerError: as `save_states`.
        """
        self._check_has_state("load_states")
        super().load_states(fname)
        self._fitted = self._optimizer  # which was fitted before it was saved
        self._check_optimizer()

    def _init_optimizer(self, optimizer: Any, optimizer_params: dict[str, Any] | None) -> None:
        """Take the first optimizer, or another one in its place."""
        options = optimizer_params or {}
        if str(optimizer).lower() == "sgd" and self.algorithm.sends != "gradients":
            super()._init_optimizer(SGD(**options), None)
        else:
            super()._init_optimizer(optimizer, options)
        if self._fitted is not None:
            self._follow_optimizer(options)

    def _follow_optimizer(self, options: Collection[str] = ()) -> None:
        """Fit the present optimizer to the algorithm, or refuse it.

        Args:
            options: the names of the options that it was made with, where they are known.

        Raises:
            ValueError: the algorithm cannot work with it.
        """
        if self.algorithm.sends != "gradients":
            if self._updaters[0].optimizer is not self._optimizer:
                raise ReplacedOptimizerError(
                    "trainer._optimizer is not the optimizer of trainer._updaters, which takes the steps: replace both "
                    "by trainer._init_optimizer(optimizer, options)"
                )
            if self._optimizer is self._fitted:
                if self.algorithm.plain_sgd:  # which an option that has been changed could end
                    self._check_optimizer()
                return
        self._fit_optimizer(options)
        self._fitted = self._optimizer

    def _fit_optimizer(self, options: Collection[str]) -> None:
        """See `_follow_optimizer`; called for another optimizer, and before gradients are sent."""
        raise NotImplementedError

    def _check_optimizer(self) -> None:
        """Refuse an optimizer that the algorithm cannot work with."""
        raise NotImplementedError

    def _check_replaced(self, rule: RuleChoice, new: RuleChoice) -> None:
        """Refuse an optimizer whose steps are not those that the servers go on with.

        They keep their state as well. A new optimizer has none, which is the same for SGD without
        momentum before or afterwards.
        """
        if new == rule and self._optimizer is self._fitted:
            return
        momenta = [getattr(each, "momentum", 0.0) for each in (self._fitted, self._optimizer)]
        if new == rule and rule.name == PLAIN_SGD.name and self.algorithm.optimizer_chooses_rule and not all(momenta):
            return
        raise ReplacedOptimizerError(
            f"the optimizer or one of its options was changed, but algorithm {self.algorithm.name!r} goes on with the "
            f"{rule.name!r} steps and the state that it began with: change the learning rate, momentum and wd of "
            f"trainer.optimizer only (SGD without momentum can be replaced by SGD), or use {WAY_OUT}"
        )

    def _check_has_state(self, method: str) -> None:
        if self.algorithm.sends == "gradients":
            raise ReplacedOptimizerError(
                f"{method}: with algorithm {self.algorithm.name!r} no state is in this worker's optimizer, so that the "
                "file would have none: esync.Checkpoints keeps the servers' (docs/how-to/checkpoints.md)"
            )
