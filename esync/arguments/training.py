"""Flags of the training itself: algorithm, network, optimizer, learning rates, and when it ends."""

import argparse
from collections.abc import Mapping

from .. import config
from .modes import MODES, NETWORKS, UPDATES
from .values import accuracy, count, index, not_negative, positive

MODES_OF: Mapping[str, tuple[str, ...]] = {
    "momentum": tuple(mode for mode in MODES if mode != "gd-async"),
    "learning_rate": tuple(mode for mode in MODES if mode not in UPDATES),
    "local_lr": UPDATES,
    "global_lr": UPDATES,
}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    training = parser.add_argument_group("training")
    add = training.add_argument
    add("-m", "--mode", choices=MODES, default=config.MODE, help="algorithm (default: %(default)s)")
    add("-n", "--network", choices=NETWORKS, default=config.NETWORK, help="network (default: %(default)s)")
    add("--no-hybridize", action="store_true", help="run the network imperatively (slower, easier to debug)")
    add(
        "-b",
        "--batch-size",
        type=count,
        default=config.BATCH_SIZE,
        help="samples of one iteration on this device (default: %(default)s)",
    )
    add("--seed", type=index, default=config.SEED, help="of initial weights, shares and batches (default: %(default)s)")
    add(
        "--optimizer",
        default=config.OPTIMIZER,
        help="a Gluon optimizer; modes that send gradients take sgd only (default: %(default)s)",
    )
    add(
        "--momentum",
        type=not_negative,
        default=None,
        help=f"of the optimizer (default: {config.MOMENTUM}; modes dgs and dgc-async: {config.DGS_MOMENTUM})",
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
        help=f"all modes but {', '.join(UPDATES)}; sync-switch takes it times the number of workers while it is "
        "synchronous (default: %(default)s)",
    )
    add(
        "-ll",
        "--local-lr",
        type=positive,
        default=config.LEARNING_RATE_LOCAL,
        help=f"modes {', '.join(UPDATES)}: of the local optimizer (default: %(default)s)",
    )
    add(
        "-gl",
        "--global-lr",
        type=positive,
        default=config.LEARNING_RATE_GLOBAL,
        help=f"the same modes: scales the mean model update (default: %(default)s; modes diloco and dylu: "
        f"{config.DILOCO_GLOBAL_LR})",
    )

    end = parser.add_argument_group("end of the run", "Any of them ends it cleanly, on all workers.")
    add = end.add_argument
    add("--rounds", type=count, help="communication rounds; asynchronous modes: commits ÷ workers; local: iterations")
    add("--epochs", type=positive, help="samples of all workers ÷ size of the training set")
    add("--max-time", type=positive, help="seconds")
    add("--target-accuracy", type=accuracy, help="test accuracy")


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """Nothing here depends on another flag."""
