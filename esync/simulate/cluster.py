"""From a cluster description, the one that launch reads too, to the models of its parts."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import config
from ..files import expanded
from ..launch.description import Description, DescriptionError, Worker
from ..launch.plan import device_folders
from .coordination import StateServerModel
from .devices import DeviceModel, Pause
from .network import Link
from .servers import ServerModel
from .world import WorkerModel

#: HOST-0, HOST-1 … of an entry with `count`.
NUMBERED = re.compile(r"(.+)-[0-9]+")
ROUND_FILE = re.compile(r"iter-([0-9]+)\.txt")
#: The phase of a round file that is the device's work.
WORK = "forward and backward"


@dataclass(frozen=True)
class ClusterModel:
    """Everything that is modelled.

    Attributes:
        workers: in the order of their ranks.
        servers: in the order of their shards.
        state_server: of mode esync.
        link: host → its way into the network.
        evaluation_time: seconds.
    """

    workers: tuple[WorkerModel, ...]
    servers: tuple[ServerModel, ...]
    state_server: StateServerModel
    link: Callable[[str], Link]
    evaluation_time: float


def model(description: Description, folder: Path, only_first: bool = False) -> ClusterModel:
    """Work out the models.

    Args:
        description: the cluster.
        folder: from which the paths in it are meant.
        only_first: mode local trains on the first worker alone.

    Raises:
        DescriptionError: something that a simulation needs is missing, or a trace cannot be read.
    """
    described = description.workers[:1] if only_first else description.workers
    workers = tuple(
        _worker(rank, worker, device_folder, folder)
        for rank, (worker, device_folder) in enumerate(zip(described, device_folders(described), strict=True))
    )
    servers = tuple(
        ServerModel(server.host, server.simulate.message_time, server.simulate.throughput or math.inf)
        for server in description.servers
    )
    section = description.state_server
    if section is None:
        state_server = StateServerModel(description.scheduler.host)
    else:
        state_server = StateServerModel(section.host, section.simulate.answer_time)
    return ClusterModel(workers, servers, state_server, links(description), description.simulate.evaluation_time)


def links(description: Description) -> Callable[[str], Link]:
    """Host → its link, as the section network says; without it, the network costs nothing."""
    network = description.network
    bandwidth = _bytes(network.bandwidth) or math.inf
    latency = network.latency or 0.0

    def link(host: str) -> Link:
        numbered = NUMBERED.fullmatch(host)
        entry = network.hosts.get(host) or (network.hosts.get(numbered[1]) if numbered else None)
        if entry is None:
            return Link(bandwidth, latency / 2)
        # Latencies are said for the whole way to an ordinary host, which has its own half of it.
        own = latency / 2 if entry.latency is None else max(0.0, entry.latency - latency / 2)
        return Link(_bytes(entry.bandwidth) or bandwidth, own)

    return link


def _worker(rank: int, worker: Worker, device_folder: str, folder: Path) -> WorkerModel:
    behaviour = worker.simulate
    trace = _trace(folder / expanded(behaviour.trace), rank) if behaviour.trace else ()
    step_time = behaviour.step_time or worker.step_time
    if step_time is None and not trace:
        raise DescriptionError(f"workers[{rank}].simulate.step_time: a simulation needs it, or simulate.trace")
    device = DeviceModel(
        step_time=step_time or 0.0,
        jitter=behaviour.jitter,
        distribution=behaviour.distribution,
        speed=behaviour.speed,
        pauses=[Pause(pause.at, pause.lasting, pause.every) for pause in behaviour.pauses],
        trace=trace,
        spells=worker.spells,
    )
    crashes = tuple((crash.at, crash.restart_after) for crash in behaviour.crashes)
    return WorkerModel(rank, worker.host, device_folder, device, crashes)


def _trace(path: Path, rank: int) -> tuple[float, ...]:
    """Seconds of the iterations in a round file, or in all round files of a folder in their order."""
    place = f"workers[{rank}].simulate.trace: {path}"
    try:
        files = sorted(path.glob("iter-*.txt"), key=_number) if path.is_dir() else [path]
        seconds = [
            float(phases[WORK])
            for file in files
            for phases in json.loads(file.read_text(encoding="utf-8"))["time"].values()
            if WORK in phases
        ]
    except OSError as error:
        raise DescriptionError(f"{place}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DescriptionError(f"{place}: expected a round file iter-N.txt, or a folder of them") from None
    if not seconds or min(seconds) <= 0:
        raise DescriptionError(f"{place}: expected iterations with a phase {WORK!r} that takes time")
    return tuple(seconds)


def _number(path: Path) -> int:
    match = ROUND_FILE.fullmatch(path.name)
    return int(match[1]) if match else 0


def _bytes(bits: float | None) -> float | None:
    """Bytes per second of TCP payload."""
    return None if bits is None else bits / 8 * config.SIMULATE_GOODPUT
