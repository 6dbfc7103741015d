"""Predict the speed of a candidate by a simulation that is long enough."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import config
from ..algorithms.rate_scaling import RateScalingOptions
from ..algorithms.registry import ALGORITHMS
from ..launch import flags
from ..launch.description import Description, errors_of
from ..samples import UNKNOWN, Iterations, Training
from ..simulate.cluster import links, model
from ..simulate.job import SimulationJob
from .bottleneck import Bottleneck, bottleneck, busiest_traffic
from .candidates import STRIPPED, Candidate, PlanClass, class_of
from .steady import steady

#: Flags that end a run, which are dropped: a plan's simulations end when they are long enough.
ENDS = frozenset({"rounds", "epochs", "max_time", "target_accuracy", "train_steps"})
#: Flags of a description whose effect is not modelled.
NOT_MODELLED = frozenset({"elastic", "redistribute", "lease"})


@dataclass(frozen=True)
class Task:
    """A candidate on a cluster.

    Attributes:
        candidate: what is tried.
        description: the cluster.
        file: its file, for messages and relative paths.
        limit: samples per second that all devices of the cluster would compute without exchanges.
        training: what is known of the program's need of samples.
    """

    candidate: Candidate
    description: Description
    file: Path
    limit: float
    training: Training = UNKNOWN


@dataclass(frozen=True)
class Forecast:
    """The predicted speed of a candidate.

    Attributes:
        candidate: the candidate.
        plan_class: its class.
        throughput: samples per second.
        efficiency: throughput divided by that of all devices of the cluster without exchanges.
        round_time: seconds per round; in asynchronous modes, per as many commits as there are workers.
        wait: seconds per round that the device which waits longest waits for the others.
        traffic: bytes per second of the busiest port, in its busier direction.
        bottleneck: the bottleneck.
        worth: worth of a sample, 1 on one device alone; see `samples.worth`.
        learning_rate_factor: of the program's learning rate, the one that suits this method, if the
            program's suits one device alone.
        time_to_target: seconds to the target of the training; None if there is none.
        suited_time: the same with the learning rate that suits.
        settings: those that the state server has chosen, as in run.json (`chosen_settings`); empty: none.
    """

    candidate: Candidate
    plan_class: PlanClass
    throughput: float
    efficiency: float
    round_time: float
    wait: float
    traffic: float
    bottleneck: Bottleneck
    worth: float = 1.0
    learning_rate_factor: float = 1.0
    time_to_target: float | None = None
    suited_time: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def useful(self) -> float:
        """Samples per second times their worth: those that one device alone would need to get as far."""
        return self.throughput * self.worth


def prepared(description: Description) -> tuple[Description, list[str]]:
    """Return a description without the flags that a plan chooses or that cannot be modelled.

    The second value names the flags of its section `train` that are not modelled.
    """
    train = {
        name: value
        for name, value in description.train.items()
        if name not in ENDS | NOT_MODELLED | STRIPPED and name not in ("mode", "use_dcasgd")
    }
    left_out = sorted(name for name in NOT_MODELLED & description.train.keys() if description.train[name])
    return description.model_copy(update={"train": train, "per_host": False, "batch_by_speed": False}), left_out


def with_workers(description: Description, ranks: Collection[int]) -> Description:
    """Return a description with the workers of these ranks only."""
    workers = [worker for rank, worker in enumerate(description.workers) if rank in ranks]
    return with_known_hosts(description.model_copy(update={"workers": workers}))


def with_known_hosts(description: Description) -> Description:
    """Return a description without links of hosts on which no process runs."""
    names = description.link_names()
    hosts = {name: link for name, link in description.network.hosts.items() if name in names}
    network = description.network.model_copy(update={"hosts": hosts})
    return description.model_copy(update={"network": network})


def forecast(task: Task) -> Forecast:
    """Simulate a candidate until its samples per second are steady.

    Raises:
        ExpectedError: the candidate cannot be simulated; the message says why.
    """
    candidate, description = task.candidate, task.description
    if candidate.ranks is not None:
        description = with_workers(description, candidate.ranks)
    ways = {"per_host": candidate.per_host, "batch_by_speed": candidate.batch_by_speed}
    description = description.model_copy(update=ways)
    job = SimulationJob(task.file, "none", candidate.flags, description=description, logs=False, quiet=True)
    result = steady(job, len(description.workers))
    state_server = (description.state_server or description.scheduler).host
    devices, training = result["devices"], task.training
    options = flags.understood(flags.merge(description.train, candidate.flags))
    counts = np.array([device["iterations"] for device in devices]) / result["rounds"]
    exchange = max(device["transfer"] / max(device["rounds"], 1) for device in devices) * result["rounds"]
    iterations, step = delayed(counts, vars(options), exchange, result["seconds"]), step_factor(vars(options), counts)
    suited = training.needed(iterations, None)
    needed = training.needed(iterations, step) if training.same_rate else suited
    return Forecast(
        candidate,
        class_of(options, candidate),
        result["throughput"],
        result["throughput"] / task.limit,
        result["seconds"] / result["rounds"],
        max(device["wait"] / max(device["rounds"], 1) for device in devices),
        busiest_traffic(result),
        bottleneck(result, links(description), state_server),
        training.alone / needed,
        np.sum(counts) / max(counts) * training.alone / suited / step,
        needed / result["throughput"] if training.target else None,
        suited / result["throughput"] if training.target else None,
        result["chosen_settings"],
    )


def delayed(iterations: np.ndarray, options: Mapping[str, Any], exchanges: float, seconds: float) -> np.ndarray:
    """Return each device's iterations from a common model to the one that has them.

    With `--overlap` those during the exchange come on top of those between two exchanges.

    Args:
        iterations: between two exchanges.
        options: the worker's flags.
        exchanges: seconds of all exchanges.
        seconds: of the run.
    """
    return iterations * (1 + exchanges / seconds) if options.get("overlap") else iterations


def step_factor(options: Mapping[str, Any], iterations: Iterations) -> float:
    """Return how far a round's step goes, beside the steps of one device alone with the same learning rate.

    That is the mean number of local iterations over the largest one, and in asynchronous modes the number
    of devices; times the factor of `--lr-scaling`.

    Args:
        options: the worker's flags.
        iterations: of each device between two exchanges.
    """
    algorithm, busy = ALGORITHMS.get(str(options.get("mode"))), [count for count in iterations if count > 0]
    if algorithm is None:  # one of the user's
        return 1.0
    devices = sum(busy) / max(busy)
    scaling: Any = options.get("lr_scaling") or config.LR_SCALING
    factor = RateScalingOptions(lr_scaling=scaling).rate_factor(devices, 0) if algorithm.synchronous else devices
    if algorithm.sends != "updates" or not busy:
        return factor
    by_samples = options.get("weighting") == "samples"
    mean = sum(count**2 for count in busy) / sum(busy) if by_samples else sum(busy) / len(busy)
    return factor * mean / max(busy)


def speeds_of(description: Description, file: Path) -> list[float]:
    """Return the samples per second of each device while it computes.

    Raises:
        DescriptionError: a device's time is not known.
    """
    with errors_of(file):
        workers = model(description, file.parent).workers
    return [batch_size_of(description) / worker.device.mean for worker in workers]


def batch_size_of(description: Description) -> int:
    """Return the samples of one iteration on one device."""
    size: Any = description.simulate.batch_size or description.train.get("batch_size") or config.BATCH_SIZE
    return int(size)
