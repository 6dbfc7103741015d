"""Flags of the training itself, its data, and the device that a worker computes on."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from ..algorithms import ALGORITHMS
from ..algorithms.registry import names, options_of
from ..data.partitions import GRAMMAR, parse_partition
from ..data.registry import REGISTRY
from ..runtime.straggler_injection import NETWORK, parse_straggler_event
from .flag_types import Condition, FlagGroup, accuracy, checked, count, index, not_negative, positive

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

_TRAINING_CONDITIONS: Mapping[str, Condition] = {
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


def _add_training(parser: argparse.ArgumentParser) -> None:
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
        f"synchronous (all modes but {', '.join(names(_TRAINING_CONDITIONS['local_lr']))}; default: %(default)s)",
    )
    add(
        "-ll",
        "--local-lr",
        type=positive,
        default=config.LEARNING_RATE_LOCAL,
        help=f"learning rate of the local optimizer (modes {', '.join(names(_TRAINING_CONDITIONS['local_lr']))}; "
        "default: %(default)s)",
    )

    end = parser.add_argument_group("end of the run", "Any of them ends it cleanly, on all workers.")
    add = end.add_argument
    add("--rounds", type=count, help="communication rounds; asynchronous modes: commits ÷ workers; local: iterations")
    add("--epochs", type=positive, help="samples of all workers ÷ size of the training set")
    add("--max-time", type=positive, help="seconds since the workers have met")
    add("--target-accuracy", type=accuracy, help="test accuracy")


TRAINING = FlagGroup(_add_training, conditions=_TRAINING_CONDITIONS)


def partition(text: str) -> str:
    """Return the text itself where it is a partition; ValueError otherwise."""
    parse_partition(text)
    return text


def _add_data(parser: argparse.ArgumentParser) -> None:
    data = parser.add_argument_group("data")
    add = data.add_argument
    add("-d", "--dataset", choices=sorted(REGISTRY), default=config.DATASET, help="data set (default: %(default)s)")
    add(
        "-dd",
        "--data-dir",
        help=f"folder that holds the data set's folder (default: the first that does: {', '.join(config.DATA_DIRS)})",
    )
    add("--partition", type=checked(partition), help=f"who trains on what: {GRAMMAR} (default: {config.PARTITION})")
    add("-s", "--split-by-class", type=int, choices=(0, 1), default=0, help="1: the same as --partition class")


def _check_data(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse a contradiction between the two flags for partitions; afterwards `partition` alone counts."""
    if options.split_by_class and options.partition not in (None, "class"):
        raise ValueError(f"--split-by-class 1 and --partition {options.partition} contradict each other")
    options.partition = options.partition or ("class" if options.split_by_class else config.PARTITION)


DATA = FlagGroup(_add_data, _check_data)


def _add_device(parser: argparse.ArgumentParser) -> None:
    device = parser.add_argument_group("device")
    add = device.add_argument
    add("-g", "--gpu", type=index, help=f"id of the GPU (default: {config.DEFAULT_GPU_ID}, or the CPU without a GPU)")
    add("-c", "--cpu", type=int, choices=(0, 1), default=config.USE_CPU, help="1: use the CPU")
    add("--step-time", type=positive, help="seconds: make every iteration last that long, to stand for a slower device")
    add(
        "--straggle",
        type=checked(parse_straggler_event),
        nargs="+",
        default=(),
        metavar="KIND:DELAY@AT+LASTING",
        help="be a straggler on purpose: from second AT of the run on, for LASTING seconds, every iteration (compute) "
        "or every message to a parameter server (network) takes DELAY seconds longer",
    )


def _check_device(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse a GPU beside the CPU, and delays of messages to parameter servers where there are none."""
    if options.cpu and options.gpu is not None:
        raise ValueError(f"--cpu 1 and --gpu {options.gpu} contradict each other")
    if options.collective != "ps" and any(event.kind == NETWORK for event in options.straggle):
        raise ValueError(f"--straggle {NETWORK}: delays messages to parameter servers; --collective ps has those")


DEVICE = FlagGroup(_add_device, _check_device)
