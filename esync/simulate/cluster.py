"""Convert a cluster's description, the same that launch reads, to models of its parts."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import config
from ..launch.batch_shares import described_times
from ..launch.description import Description, DescriptionError, WorkerEntry
from ..launch.workers import device_folders
from ..runtime.batch_sizes import Division, StepTime
from ..runtime.errors import suggestion
from ..runtime.files import expanded
from ..runtime.phase_timer import iteration_times
from .coordination import StateServerModel
from .devices import DeviceModel, SpeedProfile, StalledError
from .network import Link
from .servers import ServerModel
from .world import WorkerModel


@dataclass(frozen=True)
class ClusterModel:
    """Models of all parts of a cluster.

    Attributes:
        workers: the workers in the order of their ranks.
        servers: the parameter servers in the order of their shards.
        state_server: the state server, which only mode esync uses.
        link: returns a host's link to the network.
        evaluation_time: seconds of one evaluation.
        message_scale: factor by which modelled messages are larger than the simulated ones.
        per_host: whether the workers of a host exchange as one.
        step_times: of all devices, by which batches are divided; empty: all batches are equal.
        memory_bandwidth: bytes per second that a worker of such a host copies or sums.
    """

    workers: tuple[WorkerModel, ...]
    servers: tuple[ServerModel, ...]
    state_server: StateServerModel
    link: Callable[[str], Link]
    evaluation_time: float
    message_scale: float = 1.0
    per_host: bool = False
    step_times: tuple[StepTime, ...] = ()
    memory_bandwidth: float = config.SIMULATE_MEMORY_BANDWIDTH

    def ranks_by_host(self) -> dict[str, list[int]]:
        """Return host → ranks of its workers, in the order of `workers`."""
        ranks: dict[str, list[int]] = {}
        for worker in self.workers:
            ranks.setdefault(worker.host, []).append(worker.rank)
        return ranks

    def host_groups(self) -> dict[str, tuple[int, ...]]:
        """Return host → ranks of its workers, where several of them exchange as one."""
        if not self.per_host:
            return {}
        return {host: tuple(ranks) for host, ranks in self.ranks_by_host().items() if len(ranks) > 1}

    def batch_sizes(self, batch_size: int, division: Division) -> list[int]:
        """Return the samples of each worker's batches, at first, where equal ones have `batch_size`."""
        return division.sizes(batch_size, self.step_times) if self.step_times else [batch_size] * len(self.workers)

    def divided_devices(self, batch_size: int, division: Division) -> list[DeviceModel]:
        """Return the models of the devices with those batches."""
        devices = [worker.device for worker in self.workers]
        if not self.step_times:
            return devices
        shares = [size / batch_size for size in self.batch_sizes(batch_size, division)]
        return [
            device.slowed(time.at(share) / time.step_time)
            for device, time, share in zip(devices, self.step_times, shares, strict=True)
        ]


def model(description: Description, folder: Path, only_first: bool = False) -> ClusterModel:
    """Return the models of a described cluster.

    Args:
        description: the cluster.
        folder: base folder of relative paths in the description.
        only_first: keep the first worker only, as mode local does.

    Raises:
        DescriptionError: a value that the simulation needs is missing, or a trace cannot be read.
    """
    described = description.workers[:1] if only_first else description.workers
    workers = tuple(
        _worker(rank, worker, device_folder, folder)
        for rank, (worker, device_folder) in enumerate(zip(described, device_folders(described), strict=True))
    )
    servers = tuple(
        ServerModel(
            server.host,
            server.simulate.message_time,
            math.inf if server.simulate.throughput is None else server.simulate.throughput,
        )
        for server in description.servers
    )
    section = description.state_server
    if section is None:
        state_server = StateServerModel(description.scheduler.host)
    else:
        state_server = StateServerModel(section.host, section.simulate.answer_time)
    return ClusterModel(
        workers,
        servers,
        state_server,
        links(description),
        description.simulate.evaluation_time,
        per_host=bool(description.per_host),
        step_times=described_times(described) if description.batch_by_speed and not only_first else (),
        memory_bandwidth=description.simulate.memory_bandwidth,
    )


def links(description: Description) -> Callable[[str], Link]:
    """Return a function that returns a host's link, according to the section `network`.

    Without that section, transfers take no time.

    Raises:
        DescriptionError: the section has a host that does not exist, or a latency of less than half
            of the default.
    """
    network = description.network
    _check_hosts(description)
    bandwidth = _bytes(network.bandwidth, math.inf)
    latency = network.latency or 0.0

    def link(host: str) -> Link:
        if (entry := network.link_of(host)) is None:
            return Link(bandwidth, latency / 2)
        # A host's latency includes half of the default latency, the share of the host at the other end.
        half = latency / 2 if entry.latency is None else entry.latency - latency / 2
        return Link(_bytes(entry.bandwidth, bandwidth), half)

    return link


def _check_hosts(description: Description) -> None:
    """Refuse hosts that `links` would ignore."""
    network, known_hosts = description.network, description.link_names()
    half = (network.latency or 0.0) / 2
    for host, entry in network.hosts.items():
        if host not in known_hosts:
            raise DescriptionError(
                f"network.hosts.{host}: nothing runs on a host of that name{suggestion(host, known_hosts)}"
            )
        if entry.latency is not None and entry.latency < half:
            raise DescriptionError(
                f"network.hosts.{host}.latency: {1e3 * entry.latency:g} ms are less than half of network.latency, "
                f"{1e3 * half:g} ms, which an ordinary host's end of the way takes; give at least that much, or lower "
                "network.latency and give the slower hosts entries of their own"
            )


def _worker(rank: int, worker: WorkerEntry, device_folder: str, folder: Path) -> WorkerModel:
    behaviour = worker.simulate
    trace = _trace(folder / expanded(behaviour.trace), rank) if behaviour.trace else ()
    step_time = behaviour.step_time or worker.step_time
    if step_time is None and not trace:
        raise DescriptionError(
            f"workers[{rank}].simulate.step_time: a simulation needs it, or simulate.trace; "
            "esync plan measures it (without --no-measure)"
        )
    device = DeviceModel(
        step_time=0.0 if trace else step_time or 0.0,
        jitter=0.0 if trace else behaviour.jitter,
        distribution=behaviour.distribution,
        speed=behaviour.speed,
        pauses=behaviour.pauses,
        trace=trace,
        straggler_events=worker.straggler_events,
    )
    try:  # after the last change of speed and the first of each pause, the device is periodic
        latest = max([0.0, *(pause.at for pause in behaviour.pauses), *(start for start, _ in behaviour.speed)])
        SpeedProfile(device.speed, device.pauses).ends(latest, device.mean)
    except StalledError as error:
        raise DescriptionError(f"workers[{rank}].simulate.pauses: {error}") from None
    crashes = tuple((crash.at, crash.restart_after) for crash in behaviour.crashes)
    return WorkerModel(rank, worker.host, device_folder, device, crashes)


def _trace(path: Path, rank: int) -> tuple[float, ...]:
    """Return the seconds of the iterations in a round file, or in a folder of them in order."""
    location = f"workers[{rank}].simulate.trace: {path}"
    try:
        files = sorted(path.glob("iter-*.txt"), key=lambda file: int(file.stem[5:])) if path.is_dir() else [path]
        seconds = [
            iteration_time
            for file in files
            for iteration_time in iteration_times(json.loads(file.read_text(encoding="utf-8")))
        ]
    except OSError as error:
        raise DescriptionError(f"{location}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DescriptionError(f"{location}: expected a round file iter-N.txt, or a folder of them") from None
    if not seconds or not all(0 < duration < math.inf for duration in seconds):
        raise DescriptionError(f"{location}: expected round files with iterations that take time")
    return tuple(seconds)


def _bytes(bits: float | None, otherwise: float) -> float:
    """Convert a bandwidth in bits per second to bytes of TCP payload per second."""
    return otherwise if bits is None else bits / 8 * config.SIMULATE_GOODPUT
