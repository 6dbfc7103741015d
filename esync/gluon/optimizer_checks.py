"""Checks that an optimizer and its parameters are supported by an algorithm."""

import math
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from ..algorithms.base import Algorithm
from ..rules import RuleChoice
from ..runtime.mxnet_import import mx
from .optimizer_to_rule import MODULES as OPTIMIZER_MODULES
from .optimizer_to_rule import WAY_OUT, moving_without_gradient, rule_name, rule_of, sgd_alone

#: Values of gluon.Trainer's arguments that mean nothing on one device; of others only None does.
MEANINGLESS = {"kvstore": (None, "local", "device"), "update_on_kvstore": (None, False)}

#: Methods of optimizers that make a step.
STEP_METHODS = (
    "update",
    "update_multi_precision",
    "_update_impl",
    "create_state",
    "create_state_multi_precision",
    "_update_count",
    "_get_lr",
    "_get_lrs",
    "_get_wd",
    "_get_wds",
)

#: Modules of their functions, and of gluon.Trainer's.
MODULES = (*OPTIMIZER_MODULES, "mxnet.gluon.trainer")

#: Optimizers that compute the weights from their state alone.
STATE_IS_THE_MODEL = (mx.optimizer.Ftrl, mx.optimizer.FTML)


def check_unused(**arguments: Any) -> None:
    """Check that arguments of gluon.Trainer which say how to exchange mean nothing on one device.

    Raises:
        ValueError: one does.
    """
    for name, value in arguments.items():
        if value not in MEANINGLESS.get(name, (None,)):
            raise ValueError(f"{name}={value!r}: esync.Trainer exchanges in its own way; leave {name} out")


def check_optimizer(algorithm: Algorithm, optimizer: Any, parameters: Iterable[Any]) -> None:
    """Check that the algorithm supports an optimizer.

    Raises:
        ValueError: it does not; the message says why.
    """
    name = algorithm.name
    if not algorithm.has_momentum and getattr(optimizer, "momentum", None):
        raise ValueError(f"algorithm {name!r} has no momentum: leave it out of the optimizer's options")
    if algorithm.plain_sgd:
        _check_plain_sgd(name, optimizer, parameters)
    if algorithm.sends == "updates" and isinstance(optimizer, STATE_IS_THE_MODEL):
        raise ValueError(
            f"algorithm {name!r} exchanges weights, but the optimizer {type(optimizer).__name__!r} computes the "
            "weights from its own state in every step, and so would forget the common ones: use another one ('adam', "
            "'adagrad', …); algorithm 'local' takes any"
        )


def choose_rule(
    algorithm: Algorithm, optimizer: Any, options: Collection[str], parameters: Iterable[Any]
) -> RuleChoice:
    """Return the rule by which servers, or a sparse algorithm, take the optimizer's steps.

    Args:
        algorithm: one that sends gradients.
        optimizer: the user's.
        options: the names of the options that it was made with, where they are known.
        parameters: those that it trains.

    Raises:
        ValueError: they cannot take them; the message says why.
    """
    choose = rule_of if algorithm.optimizer_chooses_rule else sgd_alone
    rule = choose(optimizer, options, algorithm.name)
    if methods := replaced_methods(optimizer):
        raise ValueError(
            f"the program has replaced the optimizer's {', '.join(methods)}, which algorithm {algorithm.name!r} does "
            f"not call: use {WAY_OUT}"
        )
    rate = optimizer.lr if optimizer.lr_scheduler is None else 0.0  # a schedule's is checked whenever it is sent
    check_rates(rate, getattr(optimizer, "momentum", 0.0), optimizer.wd)
    if algorithm.needs_one_optimizer:
        _check_multipliers(algorithm.name, parameters, bool(optimizer.wd))
    return rule


def check_formats(algorithm: Algorithm, parameters: Iterable[Any]) -> None:
    """Check that the algorithm supports the types of the trained parameters.

    Raises:
        ValueError: a parameter is not float32, and the algorithm requires it.
    """
    for parameter in parameters:
        if algorithm.float32_only and np.dtype(parameter.dtype) != np.float32 and parameter.grad_req != "null":
            raise ValueError(
                f"algorithm {algorithm.name!r} needs float32 weights, but parameter {parameter.name} is "
                f"{np.dtype(parameter.dtype)}"
            )


def check_rates(learning_rate: float, momentum: float, weight_decay: float) -> None:
    """Check that rates are finite.

    Raises:
        ValueError: one of them is not.
    """
    for name, rate in (("learning rate", learning_rate), ("momentum", momentum), ("weight decay", weight_decay)):
        if not math.isfinite(rate):
            raise ValueError(f"the {name} is {rate}, but should be a finite number")


def check_left_out(algorithm: Algorithm, optimizer: Any, rule: RuleChoice, parameter: Any) -> None:
    """Check that only its gradient changes a parameter that is to be left out of a step.

    Raises:
        ValueError: something else does; the message names it.
    """
    moved_by = algorithm.moving_without_gradient(getattr(optimizer, "momentum", 0.0), optimizer.wd)
    if moved_by := [*moved_by, *moving_without_gradient(rule)]:
        raise ValueError(
            f"the gradient of parameter {parameter.name} is stale, and ignore_stale_grad asks to leave it out of this "
            f"step, but algorithm {algorithm.name!r} steps with all parameters together, and {' and '.join(moved_by)} "
            "would go on without a gradient: set to 0 what can be, or use an algorithm whose optimizer runs on the "
            "workers ('esync', 'local-sgd', …)"
        )


def replaced_methods(owner: Any, names: Iterable[str] = STEP_METHODS) -> list[str]:
    """Return those methods of an object or a class of MXNet that a program has replaced by functions of its own."""
    present = ((name, getattr(owner, name, None)) for name in names)
    return [name for name, method in present if method and getattr(method, "__module__", None) not in MODULES]


def _check_plain_sgd(algorithm: str, optimizer: Any, parameters: Iterable[Any]) -> None:
    """Check that local steps divided by the learning rate are the gradients."""
    instead = "or use 'local-sgd', 'fedprox' or 'esync', which take any optimizer"
    methods = replaced_methods(optimizer)
    if rule_name(optimizer) != "sgd" or methods:
        replaced = f" with the program's own {', '.join(methods)}" if methods else ""
        raise ValueError(
            f"algorithm {algorithm!r} takes plain SGD steps on the workers, but the optimizer is "
            f"{type(optimizer).__name__!r}{replaced}: use 'sgd', {instead}"
        )
    if optimizer.clip_gradient is not None:
        raise ValueError(f"algorithm {algorithm!r} takes plain SGD steps: leave clip_gradient out, {instead}")
    _check_multipliers(algorithm, parameters, decays=False)


def _check_multipliers(algorithm: str, parameters: Iterable[Any], decays: bool) -> None:
    """Check that no parameter has a multiplier of the learning rate, or of a weight decay in use."""
    for parameter in parameters:
        if parameter.lr_mult != 1 or (decays and parameter.wd_mult != 1):
            raise ValueError(
                f"algorithm {algorithm!r} has one learning rate and weight decay for all parameters, but "
                f"{parameter.name} has lr_mult {parameter.lr_mult} and wd_mult {parameter.wd_mult}: leave them out, or "
                "use 'local-sgd', 'fedprox' or 'esync', which take any optimizer, or 'sync' without compression"
            )
