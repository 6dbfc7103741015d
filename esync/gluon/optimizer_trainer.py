"""The optimizer's part of `esync.Trainer`: local steps and their learning rates.

If a program replaces the optimizer or its state (`trainer._init_optimizer(…)`,
`trainer._optimizer = …`, `load_states`), the new one is used, or an error is raised.
"""

import logging
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

from ..algorithms import make
from ..algorithms.base import Algorithm
from ..algorithms.context import Hyper, OptimizerPart
from ..exchange import WEIGHTS
from ..rules import PLAIN_SGD, RuleChoice
from ..runtime.errors import ExpectedError
from ..runtime.mxnet_import import mx
from ..runtime.set_once import SetOnce
from ..trainer_status import TrainerStatus
from .common_lr_scheduler import CommonLRScheduler, unequal_rates_warning
from .flat_arrays import stored_values
from .master_weights import MasterWeights
from .optimizer_checks import (
    check_formats,
    check_left_out,
    check_optimizer,
    check_rates,
    choose_rule,
    replaced_methods,
)
from .optimizer_to_rule import WAY_OUT
from .optimizers import SGD, AdamW, GluonSGD
from .parameter_kinds import trained
from .reduce_on_plateau import REDUCTIONS, ReduceOnPlateau
from .trainer_interface import GluonTrainer

log = logging.getLogger(__name__)

#: Optimizers whose weight decay is not part of the gradient, and so not scaled with it.
DECOUPLED_DECAY = (mx.optimizer.AdaGrad, mx.optimizer.AdaDelta, AdamW)

#: A loss scale below float16's smallest number does not prevent overflows.
SMALLEST_LOSS_SCALE = 2.0**-24


class ReplacedOptimizerError(ExpectedError, ValueError):
    """A program has replaced an optimizer, or its state, where the algorithm cannot follow."""


class OptimizerTrainer(TrainerStatus, GluonTrainer):
    """A gluon.Trainer whose optimizer takes the steps that the algorithm leaves to it.

    Args:
        params: distinct Gluon parameters.
        optimizer: as for gluon.Trainer.
        optimizer_params: likewise.
        algorithm: the algorithm.
        gradient_scale: see `esync.Trainer`.
        dataset_size: likewise.

    Attributes:
        gradient_scale: as given.
        vector: name of the vector in which its weights are exchanged.
    """

    vector = WEIGHTS
    gradient_scale = SetOnce[float]()

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None,
        algorithm: Algorithm,
        gradient_scale: float,
        dataset_size: int | None,
    ) -> None:
        if not 0 < gradient_scale < math.inf:
            raise ValueError(f"gradient_scale is {gradient_scale!r}, but should be a number above 0")
        if isinstance(params, list) and not params:
            raise ValueError("params is empty, but should have the parameters that the optimizer trains")
        self._algorithm = algorithm
        self._fitted: Any = None  # the optimizer that has been fitted to the algorithm last
        self._started = False  # whether the run has begun
        self._begun: Any = None  # `_groups` of that time
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        self.gradient_scale = gradient_scale
        self.dataset_size = dataset_size
        self._scale *= gradient_scale
        self._places = {id(parameter): position for position, parameter in enumerate(self._params)}
        self._masters = MasterWeights(lambda: self._updaters[0])
        self._rule = PLAIN_SGD
        self._fit(optimizer_params or {})
        check_optimizer(algorithm, self._optimizer, self._params)
        check_formats(algorithm, self._params)
        self._fitted = self._optimizer
        self._updates_before = self._optimizer.num_update
        self._ignore_stale_grad = False

    @property
    def dataset_size(self) -> int | None:
        """Samples of the whole training set, or None; it can be set later.

        Raises:
            ValueError: it is set to a number that is not above 0.
        """
        return self._dataset_size

    @dataset_size.setter
    def dataset_size(self, size: int | None) -> None:
        if size is not None and not size > 0:
            raise ValueError(f"dataset_size is {size!r}, but should be the number of samples of the training set")
        self._dataset_size = size

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
        check_optimizer(self.algorithm, self._optimizer, self._params)

    def allreduce_grads(self) -> None:
        """Raise RuntimeError: what is exchanged, and when, is up to the algorithm."""
        raise RuntimeError(
            "esync.Trainer has no allreduce_grads and no update: call step. To clip this worker's gradients by their "
            "norm, call mx.gluon.utils.clip_global_norm([p.grad() for p in params if p.grad_req != 'null'], "
            "bound × what step divides by, its first argument) before it"
        )

    def update(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """Raise RuntimeError; see `allreduce_grads`."""
        self.allreduce_grads()

    def _init_optimizer(self, optimizer: Any, optimizer_params: dict[str, Any] | None) -> None:
        """Take the first optimizer, or another one in its place."""
        options = optimizer_params or {}
        registered = mx.optimizer.Optimizer.opt_registry.get("sgd") is GluonSGD and not replaced_methods(GluonSGD)
        if str(optimizer).lower() == "sgd" and self.algorithm.sends != "gradients" and registered:
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
                    check_optimizer(self.algorithm, self._optimizer, self._params)
                return
        elif type(self._updaters[0]) is not mx.optimizer.Updater or replaced_methods(self, ["_update"]):
            raise ReplacedOptimizerError(
                f"the program has replaced trainer._updaters or trainer._update, which algorithm "
                f"{self.algorithm.name!r} does not use: use {WAY_OUT}"
            )
        if self._started and self._groups != self._begun:
            raise ReplacedOptimizerError(
                "lr_mult or wd_mult of a parameter was changed during the run, or the weight decay from or to 0, but "
                f"the servers of algorithm {self.algorithm.name!r} go on with what it began with: set them before the "
                f"trainer starts, or use {WAY_OUT}"
            )
        rule, replaced = self._rule, self._optimizer is not self._fitted
        self._fit(options)
        if self.algorithm.sends == "gradients" and self._started:
            self._check_replaced(rule, self._rule)
        if replaced:
            check_optimizer(self.algorithm, self._optimizer, self._params)
            self._updates_before = self._optimizer.num_update - self.algorithm.updates_of(self.vector)
            if self._started:
                self._check_schedule()
        self._fitted = self._optimizer

    def _fit(self, options: Collection[str]) -> None:
        """Choose the rule of the present optimizer's steps, or fit its terms to the scale of its gradients."""
        if self.algorithm.sends == "gradients":
            self._rule = choose_rule(self.algorithm, self._optimizer, options, self._params)
        else:
            self._rule = PLAIN_SGD
            _follow_scale(self._optimizer, self.gradient_scale)

    def _check_replaced(self, rule: RuleChoice, new: RuleChoice) -> None:
        """Refuse an optimizer whose steps are not those that the servers go on with.

        They keep their state as well. A new optimizer has none, which is the same for SGD without
        momentum before or afterwards.
        """
        if new == rule and self._optimizer is self._fitted:
            return
        momenta = [getattr(optimizer, "momentum", 0.0) for optimizer in (self._fitted, self._optimizer)]
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

    def _local_step(self, batch_size: int) -> float:
        """Take a step of the local optimizer; see `Replica`."""
        self._follow_optimizer()
        self._follow_progress()
        optimizer = self._optimizer
        before = optimizer.num_update
        with self._scaled_rate():
            super().step(batch_size, self._ignore_stale_grad)
            # After an overflow automatic mixed precision leaves the step out, and the optimizer
            # counts none.
            return float(optimizer.learning_rate) * self.gradient_scale if optimizer.num_update > before else 0.0

    @contextmanager
    def _divided(self, divisor: float, samples: int) -> Iterator[None]:
        """Divide gradients by the divisor within a with statement, where else it would be the samples."""
        scale = self._scale
        self._scale = scale * (samples / divisor)
        try:
            yield
        finally:
            self._scale = scale

    @contextmanager
    def _scaled_rate(self) -> Iterator[None]:
        """Multiply the optimizer's learning rate as the algorithm says, within a with statement."""
        optimizer, factor = self._optimizer, self.algorithm.rate_factor
        rate, scheduler = optimizer.lr, optimizer.lr_scheduler
        if factor != 1 and scheduler is None:
            optimizer.lr = rate * factor
        elif factor != 1:
            optimizer.lr_scheduler = lambda number: scheduler(number) * factor
        try:
            yield
        finally:
            optimizer.lr, optimizer.lr_scheduler = rate, scheduler

    def _master(self, parameter: Any) -> Any:
        """Return the float32 copy that is exchanged in place of a parameter's weight, or None."""
        if self.algorithm.sends != "updates":
            return None
        return self._masters.of(self._places[id(parameter)], stored_values(parameter))

    @property
    def vectors(self) -> dict[str, list[Any]]:
        """Name of each vector of this optimizer's weights → its parameters.

        They are several where servers step, and parameters differ in lr_mult or wd_mult.
        """
        return {self._name(number, key): group for number, (key, group) in enumerate(self._groups.items())}

    @property
    def multipliers(self) -> dict[str, tuple[float, float]]:
        """Name of each of these vectors → multipliers of its learning rate and weight decay."""
        return {self._name(number, key): key for number, key in enumerate(self._groups)}

    @property
    def _groups(self) -> dict[tuple[float, float], list[Any]]:
        """The multipliers of each vector → its parameters."""
        if self.algorithm.sends != "gradients":
            return {(1.0, 1.0): self._params}
        first = next(iter(trained(self._params)), self._params[0])
        together = bool(self.algorithm.needs_one_optimizer)
        groups: dict[tuple[float, float], list[Any]] = {self._multipliers_of(first): []}
        for parameter in self._params:
            key = self._multipliers_of(first if together or parameter.grad_req == "null" else parameter)
            groups.setdefault(key, []).append(parameter)
        return groups

    @property
    def part(self) -> OptimizerPart:
        """What the algorithm sees of this optimizer."""
        return OptimizerPart(self.multipliers, self._rule, self._hyper, self._local_step, self._momentum)

    def _momentum(self) -> float:
        optimizer = self._optimizer
        return float(getattr(optimizer, "momentum", getattr(optimizer, "beta1", 0.0)))

    def begin(self) -> None:
        """Note that the run has begun."""
        self._started, self._begun = True, self._groups

    def _multipliers_of(self, parameter: Any) -> tuple[float, float]:
        return float(parameter.lr_mult), float(parameter.wd_mult) if self._optimizer.wd else 1.0

    def _name(self, number: int, multipliers: tuple[float, float]) -> str:
        return f"{self.vector}, lr_mult {multipliers[0]:g}, wd_mult {multipliers[1]:g}" if number else self.vector

    def has(self, parameter: Any) -> bool:
        """Return whether the parameter is one of this optimizer's."""
        return id(parameter) in self._places

    @property
    def _state_owners(self) -> list[Any]:
        """The objects that hold the optimizer's state."""
        scaler = self._loss_scaler
        return [self._optimizer, self._updaters[0], *([scaler] if scaler is not None else [])]

    def _check_fresh_gradients(self) -> None:
        """Refuse gradients that no backward pass has brought up to date, or zero them on request.

        gluon.Trainer does the same, and `ignore_stale_grad` is the request.
        """
        for parameter in self._params:
            if parameter.grad_req == "null":
                continue
            data = stored_values(parameter)
            if not data._fresh_grad:
                if not self._ignore_stale_grad:
                    raise UserWarning(
                        f"the gradient of parameter {parameter.name} has not been updated by backward since the last "
                        "step: this may be a mistake; if it is meant, call step with ignore_stale_grad=True, and this "
                        "parameter is left out"
                    )
                check_left_out(self.algorithm, self._optimizer, self._rule, parameter)
                parameter.zero_grad()
            data._fresh_grad = False

    @property
    def _loss_scaler(self) -> Any:
        """The loss scaler of automatic mixed precision; None where it is not used."""
        return getattr(self, "_amp_loss_scaler", None)

    def _overflow(self) -> bool:
        """Return whether the loss was scaled and these gradients are not finite.

        If so, the next loss scale becomes smaller.
        """
        return self._loss_scaler is not None and self._loss_scaler.has_overflow(self._params)

    def _check_loss_scale(self) -> None:
        """Refuse a loss scale so small that it is no remedy any more.

        Gradients that are never finite would be skipped for ever, and the other workers would wait
        for them.
        """
        if self._loss_scaler is not None and self._loss_scaler.loss_scale < SMALLEST_LOSS_SCALE:
            raise OverflowError(
                f"the gradients overflow even with a loss scale of {self._loss_scaler.loss_scale}: the training has "
                "diverged (try a smaller learning rate), or the inputs are not finite"
            )

    def _hyper(self) -> Hyper:
        self._follow_optimizer()
        self._follow_progress()
        optimizer, number = self._optimizer, self._updates_before + self.algorithm.updates_of(self.vector) + 1
        if optimizer.lr_scheduler is not None:
            # Some schedules know where they are only from earlier calls. A replacement has missed
            # those of its slot.
            for missed in range(optimizer.num_update + 1, number):
                optimizer.lr_scheduler(missed)
        optimizer.num_update = number
        rate = optimizer.learning_rate * self.algorithm.rate_factor
        momentum = getattr(optimizer, "momentum", 0.0)
        check_rates(rate, momentum, optimizer.wd)
        return Hyper(rate, momentum, optimizer.wd, self._scale, self.gradient_scale)

    @property
    def _plateau(self) -> ReduceOnPlateau | None:
        scheduler = self._optimizer.lr_scheduler
        return scheduler if isinstance(scheduler, ReduceOnPlateau) else None

    def _follow_progress(self) -> None:
        """Pass the progress of all workers to the optimizer's schedule, if it follows that."""
        scheduler, algorithm = self._optimizer.lr_scheduler, self.algorithm
        if isinstance(scheduler, CommonLRScheduler):
            scheduler.follow(algorithm.result, self.dataset_size)
        elif isinstance(scheduler, ReduceOnPlateau):
            scheduler.follow(algorithm.result)
            if algorithm.exchanged and REDUCTIONS not in algorithm.result.scalars:
                raise ValueError(
                    f"ReduceOnPlateau does not reach the other workers: algorithm {algorithm.name!r} starts its "
                    "exchanges without the scalars of its context, which Algorithm._start_exchange adds"
                )

    def _check_schedule(self) -> None:
        """Warn if the schedule will give workers different learning rates."""
        scheduler = self._optimizer.lr_scheduler
        counts_updates = scheduler is not None and not isinstance(scheduler, CommonLRScheduler | ReduceOnPlateau)
        if counts_updates and self.workers > 1 and not self.algorithm.equal_updates:
            log.warning("%s", unequal_rates_warning(scheduler, self.algorithm.name))

    def _rates(self) -> dict[str, Any]:
        """Return the optimizer's settings to compare with other workers', without those of schedules."""
        optimizer = self._optimizer
        # The weight decay of a local optimizer was multiplied by the scale of its gradients.
        fitted = self.algorithm.sends != "gradients" and not isinstance(optimizer, DECOUPLED_DECAY)
        scale = self.gradient_scale if fitted else 1.0
        rates = {"momentum": getattr(optimizer, "momentum", None), "weight decay": optimizer.wd / scale}
        if optimizer.lr_scheduler is None:
            rates["learning rate"] = optimizer.lr
        # Rounded to nine digits, because the last bits may differ between machines.
        digits = {name: float(f"{rate:.9g}") for name, rate in rates.items() if rate is not None}
        return {"optimizer": type(optimizer).__name__.lower(), **digits}

    def _become_local(self) -> None:
        """Train alone, because there is no cluster.

        Whatever the chosen mode would refuse in a cluster has been refused by now.
        """
        log.warning("no DMLC_* variable is set, so there is no cluster: training alone, in mode local")
        by_servers = self.algorithm.sends == "gradients"
        self._algorithm = make("local")
        if by_servers:
            self._fit(())


def _follow_scale(optimizer: Any, scale: float) -> None:
    """Scale an optimizer's options to gradients that are `scale` times the mean gradient."""
    if not isinstance(optimizer, DECOUPLED_DECAY):
        optimizer.wd *= scale
    if optimizer.clip_gradient is not None:
        optimizer.clip_gradient *= scale
    if hasattr(optimizer, "lamda"):  # Gluon's own DCASGD, whose term is quadratic in the gradient
        optimizer.lamda /= scale
