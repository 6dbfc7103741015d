"""Flags of the training itself, its data, and the device that a worker computes on."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from ..algorithms import ALGORITHMS
from ..algorithms.registry import names, options_of
from ..data.partitions import GRAMMAR, parse_partition
from ..data.registry import REGISTRY
from ..data.user_data import FORMS as DATA_FORMS
from ..data.user_data import check_name
from ..models.names import BATCH, GROUP, NETWORKS, SCALABLE, SUFFIX, has_batch_norm, parse_network
from ..runtime import user_functions
from ..runtime.straggler_injection import NETWORK, parse_straggler_event
from .flag_types import Condition, FlagGroup, accuracy, argparse_type, count, index, not_negative, positive

#: The value of --momentum that chooses it, and the optimizers for which it is not zero.
AUTO, WITH_MOMENTUM = "auto", ("sgd", "nag")

_TRAINING_CONDITIONS: Mapping[str, Condition] = {
    "momentum": lambda algorithm: algorithm.has_momentum,
    "learning_rate": lambda algorithm: algorithm.sends != "updates",
    "local_lr": lambda algorithm: algorithm.sends == "updates",
}


def network(text: str) -> str:
    """Return the text itself where it names a network; ValueError otherwise."""
    if ":" in text:
        user_functions.check(text)
        return text
    if text.endswith(".py"):
        raise ValueError(f"{text!r} names a file, but no function in it: {text}:FUNCTION")
    try:
        return str(parse_network(text))
    except ValueError as error:
        raise ValueError(f"{error}; one of your own: {user_functions.FORMS}") from None


def _momenta() -> str:
    """Return which modes have a default momentum of their own, for the help text."""
    defaults = {
        name: option.default
        for name, algorithm in ALGORITHMS.items()
        for option in options_of(algorithm)
        if option.shared == "momentum"
    }
    return "".join(f"; mode {name}: {default}" for name, default in defaults.items())


def _add_training(parser: argparse.ArgumentParser) -> None:
    training = parser.add_argument_group("training")
    add = training.add_argument
    others = ", ".join(name for name in NETWORKS if name not in SCALABLE)
    add(
        "-n",
        "--network",
        type=argparse_type(network),
        default=config.NETWORK,
        help=f"network: {', '.join(SCALABLE)}, each also with a multiple of the channels, as in resnet18-v1x0.25; "
        f"{others}; or {user_functions.FORMS} (default: %(default)s)",
    )
    add(
        "--normalization",
        choices=(BATCH, GROUP, AUTO),
        help="group: group norm instead of batch norm, without running statistics, for data that differ from worker "
        f"to worker; the network is then called NETWORK{SUFFIX}; auto: the same, if it has batch norm (default: as "
        "the network is named)",
    )
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
        help="a Gluon optimizer; modes sync, async and ssp take sgd, nag, adam, adamw, rmsprop and adagrad, other "
        "modes that send gradients sgd only (default: %(default)s)",
    )
    add(
        "--momentum",
        type=momentum,
        default=None,
        help=f"momentum of the optimizer; {AUTO}: with sgd and nag {config.AUTOMATIC_MOMENTUM:g}, at "
        f"{config.AUTOMATIC_MOMENTUM_RATE:g} times the given learning rate, which should suit one device without "
        f"momentum, and with --lr-scaling {config.AUTOMATIC_MOMENTUM_SCALING}; with other optimizers none "
        f"(default: {config.MOMENTUM}{_momenta()})",
    )
    add(
        "--weight-decay",
        type=not_negative,
        default=config.WEIGHT_DECAY,
        help="relative to the mean gradient of a batch (default: %(default)s)",
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
        help="learning rate of the step with a batch's gradients; sync-switch multiplies it by the number of "
        "workers in synchronous segments "
        f"(all modes but {', '.join(names(_TRAINING_CONDITIONS['local_lr']))}; default: %(default)s)",
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


def momentum(text: str) -> float | str:
    """Return a momentum, or AUTO; ValueError for anything else."""
    return text if text == AUTO else not_negative(text)


def resolve_momentum(options: argparse.Namespace) -> None:
    """Replace the momentum AUTO by a number, and choose learning rates for it.

    They are multiplied by config.AUTOMATIC_MOMENTUM_RATE, and by the effective number of workers
    in modes that can do so, unless --lr-scaling is given.
    """
    if options.momentum == AUTO:
        options.momentum = None
        if options.optimizer.lower() in WITH_MOMENTUM:
            options.momentum = config.AUTOMATIC_MOMENTUM
            factor = config.AUTOMATIC_MOMENTUM_RATE
            options.learning_rate, options.local_lr = factor * options.learning_rate, factor * options.local_lr
            if hasattr(options, "lr_scaling") and "lr_scaling" not in options.typed:
                options.lr_scaling = config.AUTOMATIC_MOMENTUM_SCALING


def _name_with_normalization(options: argparse.Namespace, typed: Set[str]) -> None:
    """Make --normalization a part of the network's name, which tells such runs apart everywhere."""
    normalization = options.normalization
    if normalization is None:
        return
    if ":" in options.network:
        if normalization != BATCH:
            raise ValueError(
                f"--normalization {normalization}: a network of your own has the layers that its function gives it; "
                f"add --normalization {BATCH} to keep them"
            )
        return
    name = parse_network(options.network)
    if normalization == AUTO:
        normalization = GROUP if has_batch_norm(options.network) else name.normalization
    if name.normalization == GROUP != normalization:
        raise ValueError(f"--normalization {normalization} contradicts --network {name}; leave one of them out")
    options.network = str(name.with_normalization(normalization))


TRAINING = FlagGroup(_add_training, _name_with_normalization, _TRAINING_CONDITIONS)


def partition(text: str) -> str:
    """Return the text if it describes a partition.

    Raises:
        ValueError: it does not.
    """
    parse_partition(text)
    return text


def _add_data(parser: argparse.ArgumentParser) -> None:
    data = parser.add_argument_group("data")
    add = data.add_argument
    add(
        "-d",
        "--dataset",
        type=argparse_type(check_name),
        default=config.DATASET,
        help=f"data set: {', '.join(REGISTRY)}; or {DATA_FORMS} (default: %(default)s)",
    )
    add(
        "-dd",
        "--data-dir",
        help="folder that contains the data set's folder; relative paths of your own data start there "
        f"(default: the first of {', '.join(config.DATA_DIRS)} that contains it; for your own data the current folder)",
    )
    add(
        "--partition",
        type=argparse_type(partition),
        help=f"division of the data among workers: {GRAMMAR} (default: {config.PARTITION})",
    )
    add("-s", "--split-by-class", type=int, choices=(0, 1), default=0, help="1: the same as --partition class")


def _check_data(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse a contradiction between the two flags for partitions, and set `partition`."""
    if options.split_by_class and options.partition not in (None, "class"):
        raise ValueError(f"--split-by-class 1 and --partition {options.partition} contradict each other")
    options.partition = options.partition or ("class" if options.split_by_class else config.PARTITION)


DATA = FlagGroup(_add_data, _check_data)


def _add_device(parser: argparse.ArgumentParser) -> None:
    device = parser.add_argument_group("device")
    add = device.add_argument
    add("-g", "--gpu", type=index, help=f"id of the GPU (default: {config.DEFAULT_GPU_ID}, or the CPU without a GPU)")
    add("-c", "--cpu", type=int, choices=(0, 1), default=config.USE_CPU, help="1: use the CPU")
    add("--step-time", type=positive, help="seconds to which every iteration is padded, to emulate a slower device")
    add(
        "--straggle",
        type=argparse_type(parse_straggler_event),
        nargs="+",
        default=(),
        metavar="KIND:DELAY@AT+LASTING",
        help="emulate a straggler: from second AT on, for LASTING seconds, every iteration (compute) or every message "
        "to a parameter server (network) takes DELAY seconds longer",
    )


def _check_device(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse a GPU beside the CPU, and delays of messages to servers where there are none.

    A typed device takes the place of the one that is the default.
    """
    if "gpu" in typed and "cpu" not in typed:
        options.cpu = 0
    elif options.cpu and "gpu" not in typed:
        options.gpu = None
    if options.cpu and options.gpu is not None:
        raise ValueError(f"--cpu 1 and --gpu {options.gpu} contradict each other")
    if options.collective != "ps" and any(event.kind == NETWORK for event in options.straggle):
        raise ValueError(f"--straggle {NETWORK}: delays messages to parameter servers; --collective ps has those")


DEVICE = FlagGroup(_add_device, _check_device)
