"""The rules by which servers take the steps of Gluon's optimizers, if gradients are sent."""

import math
from collections.abc import Collection
from dataclasses import fields
from typing import Any

from ..rules import PLAIN_SGD, RULES, RuleChoice

#: Gluon's optimizer, by the name of its class → its rule.
OPTIMIZER_RULES = {
    "SGD": "sgd",
    "NAG": "nag",
    "Adam": "adam",
    "AdamW": "adamw",
    "RMSProp": "rmsprop",
    "AdaGrad": "adagrad",
}

#: Modules of these classes; a class of the same name from elsewhere may take other steps.
MODULES = ("mxnet.optimizer.optimizer", "esync.gluon.optimizers")

#: Optimizers that need the norms of whole layers, or of rows.
LAYERWISE = ("LARS", "LAMB", "LBSGD", "GroupAdaGrad")

#: Options of optimizers that are not options of rules, because they are sent with each gradient.
PER_GRADIENT_OPTIONS = frozenset({"learning_rate", "momentum", "wd", "lr_scheduler", "rescale_grad"})

#: RMSProp's rules: without and with `centered`.
RULES_OF_RMSPROP = ("rmsprop", "centered_rmsprop")

#: Options of RMSProp by which its rule is chosen, or which only the other one has.
OF_RMSPROP = frozenset({"centered", "gamma2"})

#: Option of a rule → the optimizer's attribute, if its name differs.
ATTRIBUTES = {"eps": "float_stable_eps"}

#: Rule → the part of its state that changes even without a gradient.
FORGETTING = {
    "adam": "Adam's running means",
    "adamw": "Adam's running means",
    "rmsprop": "RMSProp's running mean",
    "centered_rmsprop": "RMSProp's running means",
}

#: Alternative, for error messages.
WAY_OUT = "an algorithm whose optimizer runs on the workers ('esync', 'local-sgd', …)"


def sgd_alone(optimizer: Any, options: Collection[str], algorithm: str) -> RuleChoice:
    """Return the rule of an algorithm whose own kind of SGD is run on the servers.

    Args:
        optimizer: the user's.
        options: the names of the options that it was made with, where they are known.
        algorithm: the name of the algorithm.

    Raises:
        ValueError: the optimizer is not SGD, or one of its options would be ignored.
    """
    if rule_name(optimizer) != "sgd":
        raise ValueError(
            f"algorithm {algorithm!r} does SGD on the servers: use the optimizer 'sgd', not "
            f"{type(optimizer).__name__!r} (algorithm 'esync' runs any optimizer on the workers"
            f"{'; sync, async and ssp take this one, too' if rule_name(optimizer) else ''})"
        )
    clipped = ["clip_gradient"] if optimizer.clip_gradient is not None else []
    _refuse([*sorted(set(options) - PER_GRADIENT_OPTIONS - {"clip_gradient"}), *clipped], algorithm)
    return PLAIN_SGD


def rule_of(optimizer: Any, options: Collection[str], algorithm: str) -> RuleChoice:
    """Return the rule by which servers take this optimizer's steps.

    Its options are the optimizer's constants.

    Args:
        optimizer: the user's.
        options: the names of the options that it was made with, where they are known.
        algorithm: the name of the algorithm.

    Raises:
        ValueError: there is no such rule, or one of the optimizer's options would be ignored or
            cannot be used.
    """
    name = rule_name(optimizer)
    if name is None:
        kind = type(optimizer).__name__
        why = "needs the norms of whole layers, of which servers see pieces" if kind in LAYERWISE else ""
        raise ValueError(
            f"algorithm {algorithm!r} takes the steps on the servers, and the optimizer {kind!r} "
            f"{why or 'has no rule there'}: use one of {', '.join(OPTIMIZER_RULES)}, or {WAY_OUT}"
        )
    constants = {option: getattr(optimizer, ATTRIBUTES.get(option, option)) for option in options_of_rule(name)}
    beyond = OF_RMSPROP if name in RULES_OF_RMSPROP else frozenset()
    unknown = sorted(set(options) - PER_GRADIENT_OPTIONS - set(constants) - beyond)
    if optimizer.begin_num_update and "beta1" in constants:  # the rule's t counts the steps of the common weights
        unknown = [*(option for option in unknown if option != "begin_num_update"), "begin_num_update"]
    _refuse(unknown, algorithm)
    return RuleChoice(
        name, {option: _checked(option, value) for option, value in constants.items() if value is not None}
    )


def options_of_rule(name: str) -> list[str]:
    """Return the names of the options of one of these rules."""
    return [field.name for field in fields(RULES[name])]  # type: ignore[arg-type]


def moving_without_gradient(rule: RuleChoice) -> list[str]:
    """Name the state of the rule that changes, or changes weights, where a gradient is zero."""
    return [FORGETTING[rule.name]] if rule.name in FORGETTING else []


def rule_name(optimizer: Any) -> str | None:
    """Return the name of the rule of this optimizer; None where there is none."""
    kind = type(optimizer)
    name = OPTIMIZER_RULES.get(kind.__name__) if kind.__module__ in MODULES else None
    return RULES_OF_RMSPROP[bool(optimizer.centered)] if name == "rmsprop" else name


def _refuse(options: Collection[str], algorithm: str) -> None:
    if options:
        raise ValueError(
            f"algorithm {algorithm!r} takes the steps on the servers, in float32, where there is no "
            f"{', '.join(options)}: leave it out, or use {WAY_OUT}"
        )


def _checked(name: str, value: Any) -> float:
    """Return an option's value as JSON can hold it.

    Raises:
        ValueError: it would spoil the weights of all workers.
    """
    number = float(value)
    if name in ("beta1", "beta2"):
        fits, expected = 0 <= number < 1, "0 or more, and below 1"
    elif name in ("clip_gradient", "clip_weights"):
        fits, expected = 0 < number < math.inf, "a number above 0; leave it out for none"
    else:
        fits, expected = math.isfinite(number), "a finite number"
    if not fits:
        raise ValueError(f"the optimizer's {name} is {number}, but should be {expected}")
    return number
