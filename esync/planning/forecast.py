"""Predict the speed of a candidate by a simulation that is long enough."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import config
from ..launch import flags
from ..launch.description import Description, DescriptionError
from ..simulate.cluster import NUMBERED, links, model
from ..simulate.job import SimulationJob
from .bottleneck import Bottleneck, bottleneck, busiest_traffic
from .candidates import STRIPPED, Candidate, PlanClass, class_of
from .sample_worth import worth
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
    """

    candidate: Candidate
    description: Description
    file: Path
    limit: float


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
        worth: worth of a sample, 1 in sequential SGD; see `sample_worth.worth`.
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

    @property
    def useful(self) -> float:
        """Samples per second times their worth: the equivalent throughput of sequential SGD."""
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
    return description.model_copy(update={"train": train, "per_host": False}), left_out


def with_workers(description: Description, ranks: Collection[int]) -> Description:
    """Return a description with the workers of these ranks only."""
    workers = [worker for rank, worker in enumerate(description.workers) if rank in ranks]
    return with_known_hosts(description.model_copy(update={"workers": workers}))


def with_known_hosts(description: Description) -> Description:
    """Return a description without links of hosts on which no process runs."""
    names = set(description.host_names())
    names |= {match[1] for name in names if (match := NUMBERED.fullmatch(name))}
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
    description = description.model_copy(update={"per_host": candidate.per_host})
    job = SimulationJob(task.file, "none", candidate.flags, description=description, logs=False, quiet=True)
    result = steady(job, len(description.workers))
    state_server = (description.state_server or description.scheduler).host
    batches = result["samples"] / result["rounds"] / batch_size_of(description)
    most = max(device["iterations"] / max(device["rounds"], 1) for device in result["devices"])
    return Forecast(
        candidate,
        class_of(flags.understood(flags.merge(description.train, candidate.flags)), candidate),
        result["throughput"],
        result["throughput"] / task.limit,
        result["seconds"] / result["rounds"],
        max(device["wait"] / max(device["rounds"], 1) for device in result["devices"]),
        busiest_traffic(result),
        bottleneck(result, links(description), state_server),
        worth(most, batches),
    )


def speeds_of(description: Description, file: Path) -> list[float]:
    """Return the samples per second of each device while it computes.

    Raises:
        DescriptionError: a device's time is not known.
    """
    try:
        workers = model(description, file.parent).workers
    except DescriptionError as error:
        raise DescriptionError(f"{file}: {error}") from None
    return [batch_size_of(description) / worker.device.mean for worker in workers]


def limit_of(description: Description, file: Path) -> float:
    """Return the samples per second that all devices would compute without exchanges.

    Raises:
        DescriptionError: a device's time is not known.
    """
    return sum(speeds_of(description, file))


def batch_size_of(description: Description) -> int:
    """Return the samples of one iteration on one device."""
    size: Any = description.simulate.batch_size or description.train.get("batch_size") or config.BATCH_SIZE
    return int(size)
