"""Flags of the training itself: network, optimizer, learning rates, and when it ends."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from ..algorithms import ALGORITHMS
from ..algorithms.registry import names, options_of
from .mode import Condition
from .values import accuracy, count, index, not_negative, positive

#: Names in models.MODELS; kept here so that a server needs no model to read its command line.
NETWORKS = (
    "alexnet",
    "resnet18-v1",
    "resnet50-v1",
    "resnet50-v2",
    "mobilenet-v1",
    "mobilenet-v2",
    "inception-v3",
    "lenet",
    "mlp",
    "cifar-resnet20-v1",
    "cifar-resnet32-v1",
    "cifar-resnet56-v1",
    "cifar-resnet110-v1",
)

CONDITIONS: Mapping[str, Condition] = {
    "momentum": lambda algorithm: algorithm.has_momentum,
    "learning_rate": lambda algorithm: algorithm.sends != "updates",
    "local_lr": lambda algorithm: algorithm.sends == "updates",
}


def _momenta() -> str:
    """Say which modes have a default momentum of their own."""
    own = {
        name: each.default
        for name, algorithm in ALGORITHMS.items()
        for each in options_of(algorithm)
        if each.shared == "momentum"
    }
    return "".join(f"; mode {name}: {default}" for name, default in own.items())


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    training = parser.add_argument_group("training")
    add = training.add_argument
    add("-n", "--network", choices=NETWORKS, default=config.NETWORK, help="network (default: %(default)s)")
    add("--no-hybridize", action="store_true", help="run the network imperatively (slower, easier to debug)")
    add(
        "-b",
        "--batch-size",
        type=count,
        default=config.BATCH_SIZE,
        help="samples of one iteration on this device (default: %(default)s)",
    )
    add(
        "--seed",
        type=index,
        default=config.SEED,
        help="seed of initial weights, shares and batches (default: %(default)s)",
    )
    add(
        "--optimizer",
        default=config.OPTIMIZER,
        help="a Gluon optimizer. Modes sync, async and ssp, whose steps the servers take, know sgd, nag, adam, adamw, "
        "rmsprop and adagrad; other modes that send gradients take sgd only (default: %(default)s)",
    )
    add(
        "--momentum",
        type=not_negative,
        default=None,
        help=f"momentum of the optimizer (default: {config.MOMENTUM}{_momenta()})",
    )
    add(
        "--weight-decay",
        type=not_negative,
        default=config.WEIGHT_DECAY,
        help="relative to the mean gradient of a batch, whatever the learning rate multiplies (default: %(default)s)",
    )

    rates = parser.add_argument_group(
        "learning rates",
        "They multiply the gradient summed over the batch: 0.0005 with batches of 64 is 0.032 on the mean gradient, in "
        "Gluon's terms. Those of optimizers that normalize the gradient (adam, adagrad, rmsprop, lars, …) are the "
        "optimizer's own.",
    )
    add = rates.add_argument
    add(
        "-l",
        "--learning-rate",
        type=positive,
        default=config.LEARNING_RATE,
        help="learning rate of the step with a batch's gradients; sync-switch takes it times the number of "
        "workers while it is "
        f"synchronous (all modes but {', '.join(names(CONDITIONS['local_lr']))}; default: %(default)s)",
    )
    add(
        "-ll",
        "--local-lr",
        type=positive,
        default=config.LEARNING_RATE_LOCAL,
        help=f"learning rate of the local optimizer (modes {', '.join(names(CONDITIONS['local_lr']))}; "
        "default: %(default)s)",
    )

    end = parser.add_argument_group("end of the run", "Any of them ends it cleanly, on all workers.")
    add = end.add_argument
    add("--rounds", type=count, help="communication rounds; asynchronous modes: commits ÷ workers; local: iterations")
    add("--epochs", type=positive, help="samples of all workers ÷ size of the training set")
    add("--max-time", type=positive, help="seconds since the workers have met")
    add("--target-accuracy", type=accuracy, help="test accuracy")


def check(options: argparse.Namespace, typed: Set[str]) -> None:
    """Do nothing: no flag here depends on another one."""
