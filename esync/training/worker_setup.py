"""Build device, checkpoints, limits, trainer and facts for run.json from the worker's flags.

The worker program and the simulator use these functions.
"""

import argparse
import math
from typing import TYPE_CHECKING, Any

from .. import config
from ..algorithms.registry import flags_of
from ..arguments import choose_algorithm, effective
from ..data.user_data import short_dataset_name
from ..runtime import user_functions
from ..runtime.errors import ExpectedError
from ..runtime.mxnet_device import find_device
from ..runtime.user_functions import short_name
from .run_facts import PER_WORKER

if TYPE_CHECKING:
    from ..algorithms import Algorithm, World
    from ..checkpoints.checkpoints import Checkpoints
    from ..exchange.protocol.round_state import Limits
    from ..trainer import Trainer
    from .run import Run

#: Gluon's optimizers whose step is proportional to the gradient, so that the learning rate may apply to
#: the sum or to the mean.
PROPORTIONAL = frozenset({"sgd", "ccsgd", "nag", "lbsgd", "dcasgd", "sgld"})


#: Flags of all modes that run.json contains both in "options" and at the top level.
FACTS = (
    *("network", "dataset", "batch_size", "seed", "partition", "optimizer", "momentum", "weight_decay", "step_time"),
    "test_images",
)


#: Flags that may name the user's code → its term in messages.
TERMS = {"network": "network", "dataset": "data set"}


def choose_device(options: argparse.Namespace) -> tuple[Any, str]:
    """Return the MXNet context, and the name of the device's log folder.

    Without -g and -c, it is the first GPU, or the CPU if there is none.
    """
    device = "cpu" if options.cpu else None if options.gpu is None else f"gpu{options.gpu}"
    return find_device(device, f"--gpu {options.gpu}", "-c 1")


def choose_checkpoints(options: argparse.Namespace) -> "Checkpoints | None":
    """Return the checkpoints that the flags configure, or None."""
    from ..checkpoints.checkpoints import Checkpoints

    if not options.checkpoint_dir:
        return None
    return Checkpoints(
        options.checkpoint_dir,
        options.checkpoint_every,
        options.keep_checkpoints,
        resume=options.resume,
        overwrite=options.overwrite,
    )


def make_limits(options: argparse.Namespace, samples: int) -> "Limits":
    """Make the limits of the run; `samples` is the size of the training set."""
    from ..exchange.protocol.round_state import Limits

    return Limits(
        rounds=options.rounds or math.inf,
        samples=math.ceil(options.epochs * samples) if options.epochs else math.inf,
        seconds=options.max_time or math.inf,
    )


def make_trainer(
    net: Any,
    options: argparse.Namespace,
    world: "World",
    samples: int,
    run: "Run | None" = None,
    data_digest: str = "",
) -> "Trainer":
    """Make the trainer that the flags describe.

    Args:
        net: the network.
        options: the flags.
        world: the interfaces to the cluster.
        samples: size of the training set.
        run: records the run.
        data_digest: digest of a data set of the user's; "" if it is not one.
    """
    from ..runtime.mxnet_import import mx
    from ..trainer import Trainer

    if options.optimizer.lower() not in mx.optimizer.Optimizer.opt_registry:
        optimizers = ", ".join(sorted(mx.optimizer.Optimizer.opt_registry))
        raise ExpectedError(f"--optimizer {options.optimizer!r} is not known to Gluon; known: {optimizers}")
    settings = {
        "learning_rate": _learning_rate(options),
        "wd": options.weight_decay,
    }
    if options.momentum is not None:
        settings["momentum"] = options.momentum
    agreement = {
        "network": short_name(options.network),
        "data set": short_dataset_name(options.dataset),
        "partition": options.partition,
        "seed": options.seed,
    }
    try:
        algorithm = choose_algorithm(options)
        return Trainer(
            net.collect_params(),
            options.optimizer,
            settings,
            algorithm=algorithm,
            limits=make_limits(options, samples),
            agreement=agreement,
            world=world,
            gradient_scale=gradient_scale(options),
            run=run,
            sources={
                f"digest of {TERMS[name]} {short_dataset_name(source['source'])}": source["digest"]
                for name, source in sources(options, data_digest).items()
            },
        )
    except (ValueError, TypeError) as error:  # TypeError: MXNet's optimizer does not know an option
        if "'momentum'" in str(error):
            raise ExpectedError(f"--momentum: the optimizer {options.optimizer} has none; leave it out") from None
        raise ExpectedError(str(error)) from None


def sources(options: argparse.Namespace, data_digest: str = "") -> dict[str, dict[str, str]]:
    """Return network and data set, as typed, with their digests, if they are the user's own."""
    digests = {"network": user_functions.digest, "dataset": lambda text: data_digest}
    typed = {name: getattr(options, name) for name in digests}
    return {name: {"source": text, "digest": digests[name](text)} for name, text in typed.items() if ":" in text}


def _learning_rate(options: argparse.Namespace) -> float:
    """Return the learning rate of the optimizer, on the worker or on the servers."""
    return float(options.local_lr if options.algorithm.sends == "updates" else options.learning_rate)


def gradient_scale(options: argparse.Namespace) -> float:
    """Return the factor of the mean gradient to which the learning rate applies.

    It is the batch size, which gives the sum over the batch, if the step is proportional to the
    gradient. For optimizers that normalize the gradient (Adam, Adagrad, LARS, …), sum and mean give the
    same step; they get the mean, which suits their other constants, and have different learning rates.
    """
    return options.batch_size if multiplies_the_sum(options) else 1.0


def multiplies_the_sum(options: argparse.Namespace) -> bool:
    """Return whether learning rates apply to the gradient summed over the batch, not to its mean."""
    return options.optimizer.lower() in PROPORTIONAL


def flag_facts(options: argparse.Namespace, algorithm: "Algorithm", data_digest: str = "") -> dict[str, Any]:
    """Return the facts about the flags in run.json, in addition to those of `run_facts.trainer_facts`.

    Args:
        options: the flags.
        algorithm: the algorithm.
        data_digest: digest of a data set of the user's; "" if it is not one.
    """
    in_effect = _effective_options(options, algorithm)
    return {
        **dict.fromkeys(("global_lr", "slowest_iterations", "query_mode")),  # in modes that have none
        **{dest: in_effect[dest] for dest in flags_of(type(algorithm)) if dest in in_effect},
        **{flag: getattr(options, flag) for flag in FACTS},
        "network": short_name(options.network),
        "dataset": short_dataset_name(options.dataset),
        **({"sources": digests} if (digests := sources(options, data_digest)) else {}),
        "options": in_effect,
        "learning_rate": _learning_rate(options),
        "learning_rate_multiplies": "sum" if multiplies_the_sum(options) else "mean",
        "collective": options.collective if algorithm.sends != "nothing" else None,
    }


def _effective_options(options: argparse.Namespace, algorithm: "Algorithm") -> dict[str, Any]:
    """Return the value of every flag that has an effect in this run, given or default."""
    momentum = config.MOMENTUM if options.momentum is None else options.momentum
    flags = {**effective(options), "momentum": momentum}
    chosen = algorithm.effective_options
    return {**flags, **{name: value for name, value in chosen.items() if name not in PER_WORKER}}
