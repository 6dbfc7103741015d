"""Turn a description into the commands of all processes: a pure function, whose result can be printed or run."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import config
from ..algorithms.registry import NON_IID
from ..arguments import choose_algorithm
from ..exchange.collectives.process_manager import READY
from ..runtime.files import expanded
from ..runtime.progress import VARIABLE as PROGRESS_VARIABLE
from ..worker import FOLDER_VARIABLE
from . import flags
from .description import Description, DescriptionError, SchedulerEntry, StateServerEntry, WorkerEntry
from .folders import PROCESSES
from .hosts import Host
from .resources import HostResources, JobResources
from .spec import LaunchPlan, ProcessSpec

#: What a state server prints when it can be asked.
STATE_SERVER_READY = "listening on "
#: The state server's folder beside the logs of the processes; hidden, so that no log tool takes it
#: for a device's.
STATE_FOLDER = ".state-server"
#: In the environment of every process, so that its output arrives while it runs.
COMMON = {"PYTHONUNBUFFERED": "1"}
#: On a machine that says nothing else.
PYTHON_THERE = "python3"


def plan(
    description: Description,
    hosts: Mapping[str, Host],
    typed: Mapping[str, Any],
    here: HostResources,
    there: Mapping[str, HostResources] | None = None,
) -> LaunchPlan:
    """Return the processes to start.

    Args:
        description: the cluster.
        hosts: see `hosts.locate`.
        typed: flags of the worker that override the description's.
        here: as many ports of this machine as `ports_needed` says, and its cores.
        there: the same of hosts that are other machines; for those that nobody has asked yet, the
            ports that the description leaves open are the defaults, or chosen by ps-lite.

    Raises:
        DescriptionError: the description and the flags make no job; the message says why.
    """
    try:
        settings = flags.merge(description.train, typed)
        options = flags.understood(settings)
    except flags.FlagError as error:
        raise DescriptionError(f"train: {error}") from None
    workers: Sequence[WorkerEntry] = description.workers
    remarks, services, cluster = [], [], {}
    exchanges = options.algorithm.sends != "nothing"
    if not exchanges:
        if len(workers) > 1:
            remarks.append(f"mode {options.mode} trains on one device: the first worker of the description")
        workers = workers[:1]
    resources = JobResources(hosts, here, there or {}, [worker.host for worker in workers])
    if exchanges:
        if options.collective == "ps":
            cluster = _cluster(description, resources)
            services = _services(description, resources, cluster, settings)
        else:
            cluster = _ranks(description, resources)
            services = [_process_manager(description, resources, cluster)]
            if description.servers:
                remarks.append(f"no parameter servers: the workers exchange by {options.collective}")
        if _asks_state_server(options, description):
            address = _state_server_address(description, resources, options)
            services.append(_state_server(description, resources, address, mode_folder(options)))
            remarks.append("dashboard: http://{state_server_ip}:{state_server_port}/dashboard/".format(**address))
            settings |= address
        elif description.state_server is None and options.algorithm.without_state_server:
            remarks.append(f"no state_server in the description: {options.algorithm.without_state_server}")
    folder = mode_folder(options)
    settings = {**settings, "log_dir": folder}
    specs = _workers(workers, resources, cluster, settings)
    spares: dict[str, dict[str, ProcessSpec]] = {}
    if description.spare_hosts and exchanges and options.collective == "ps":
        for spare in description.spare_hosts:
            spares[spare] = {}
            for group in _by_host(workers).values():
                resources = JobResources(hosts, here, there or {}, [spare] * len(group))
                spares[spare] |= _moved(group, spare, resources, cluster, settings)
        remarks.append(f"spare hosts, for the workers of hosts that do not answer: {', '.join(spares)}")
    elif description.spare_hosts:
        remarks.append("spare hosts are not used: without parameter servers nobody can take a worker's place")
    return LaunchPlan((*services, *specs), options, folder, tuple(remarks), spares)


def ports_needed(description: Description) -> int:
    """Return how many free ports of each host `plan` may use."""
    return 2 + len(description.servers) + len(description.workers)


def mode_folder(options: argparse.Namespace) -> Path:
    """Return the folder of the logs of this algorithm on this network and kind of data: {log_dir}/{network}/{mode}."""
    name = options.algorithm.name
    skewed = options.partition == "class" or options.partition.startswith("dirichlet")
    if skewed and options.algorithm.sends != "nothing":  # else one worker has all the data
        name += NON_IID
    return Path(options.log_dir) / options.network / name


def _cluster(description: Description, resources: JobResources) -> dict[str, str]:
    """What MXNet's processes have to know of one another."""
    scheduler = description.scheduler
    return {
        "DMLC_PS_ROOT_URI": resources.address(scheduler.host),
        "DMLC_PS_ROOT_PORT": str(_port(resources, scheduler, config.SCHEDULER_PORT)),
        "DMLC_NUM_SERVER": str(len(description.servers)),
        "DMLC_NUM_WORKER": str(len(description.workers)),
    }


def _ranks(description: Description, resources: JobResources) -> dict[str, str]:
    """Return what the ranks of a collective have to know: where they meet, and how many they are."""
    host = description.scheduler.host
    port = _port(resources, description.scheduler, config.SCHEDULER_PORT)
    return {"PMI_PORT": f"{resources.address(host)}:{port}", "DMLC_NUM_WORKER": str(len(description.workers))}


def _process_manager(description: Description, resources: JobResources, cluster: Mapping[str, str]) -> ProcessSpec:
    """Return where the ranks of a collective meet; it takes the scheduler's place."""
    host, port = description.scheduler.host, int(cluster["PMI_PORT"].rpartition(":")[2])
    words = ["--ranks", cluster["DMLC_NUM_WORKER"], "--host", resources.listen_address, "--port", str(port)]
    command = _python(resources, host, "esync.exchange.collectives.process_manager", words)
    environment = _environment(resources, host, {})
    return ProcessSpec(
        "process-manager", "scheduler", resources.hosts[host], command, environment, ready=READY, port=port
    )


def _services(
    description: Description, resources: JobResources, cluster: Mapping[str, str], settings: flags.Settings
) -> list[ProcessSpec]:
    """Return the scheduler and the servers."""
    words = flags.to_arguments({"start_timeout": settings.get("start_timeout")})
    limits = flags.to_arguments({"round_timeout": settings.get("round_timeout")})
    host = description.scheduler.host
    environment = _environment(resources, host, {"DMLC_ROLE": "scheduler", **cluster, **resources.interface(host)})
    command = _python(resources, host, "esync.scheduler", words)
    port = int(cluster["DMLC_PS_ROOT_PORT"])
    specs = [ProcessSpec("scheduler", "scheduler", resources.hosts[host], command, environment, port=port)]
    for index, server in enumerate(description.servers):
        place = {**resources.interface(server.host), **resources.port_variable(server.host)}
        chosen = {"DMLC_ROLE": "server", **cluster, **place, **resources.threads(server.host)}
        environment = _environment(resources, server.host, chosen)
        on = flags.to_arguments({"gpu": _gpu(server.device)})
        command = _python(resources, server.host, "esync.server", [*on, *words, *limits])
        where = resources.hosts[server.host]
        port = int(environment.get("PORT", 0))
        specs.append(ProcessSpec(f"server-{index}", "server", where, command, environment, port=port))
    return specs


def _asks_state_server(options: argparse.Namespace, description: Description) -> bool:
    """Return whether the workers will need a state server, whose address is known if the description has one."""
    known = "known" if description.state_server is not None else ""
    return choose_algorithm(argparse.Namespace(**{**vars(options), "state_server_ip": known})).asks_state_server


def _state_server_address(
    description: Description, resources: JobResources, options: argparse.Namespace
) -> flags.Settings:
    """Return the workers' flags that say where the state server is."""
    section = description.state_server
    if section is None:
        other = options.algorithm.instead_of_state_server or "choose another mode"
        raise DescriptionError(
            f"state_server: it is missing, and mode {options.mode} asks it; add state_server: {{host: localhost}}, or "
            f"{other}"
        )
    port = _port(resources, section, int(config.STATE_SERVER_PORT))
    return {"state_server_ip": resources.address(section.host), "state_server_port": port}


def _state_server(
    description: Description, resources: JobResources, address: flags.Settings, folder: Path
) -> ProcessSpec:
    assert description.state_server is not None
    host = description.state_server.host
    words = ["--state-dir", str(folder / PROCESSES / STATE_FOLDER)]
    words += ["--host", resources.listen_address, "--port", str(address["state_server_port"])]
    command = _python(resources, host, "esync.state_server", words)
    return ProcessSpec(
        "state-server",
        "state server",
        resources.hosts[host],
        command,
        _environment(resources, host, {}),
        ready=STATE_SERVER_READY,
        endless=True,
        port=address["state_server_port"],
        resumable="--state-dir" in words,
    )


def _workers(
    workers: Sequence[WorkerEntry], resources: JobResources, cluster: Mapping[str, str], settings: flags.Settings
) -> list[ProcessSpec]:
    """Return the workers; without a cluster, mode local, they need not know of anybody."""
    specs = []
    for index, (worker, device) in enumerate(zip(workers, device_folders(workers), strict=True)):
        chosen: dict[str, str] = {}
        if "PMI_PORT" in cluster:
            chosen |= {**cluster, "PMI_ID": str(index)}
        elif cluster:
            own = {**resources.interface(worker.host), **resources.port_variable(worker.host)}
            chosen |= {"DMLC_ROLE": "worker", **cluster, **own}
        chosen |= {**resources.threads(worker.host, worker.threads), PROGRESS_VARIABLE: "json", FOLDER_VARIABLE: device}
        words = flags.to_arguments(_worker_settings(worker, settings))
        try:
            flags.parse(words)
        except flags.FlagError as error:
            raise DescriptionError(f"workers[{index}] with the flags of train: {error}") from None
        command = _python(resources, worker.host, "esync.worker", words)
        environment = _environment(resources, worker.host, chosen)
        host = resources.hosts[worker.host]
        port = int(environment.get("PORT", 0))
        specs.append(ProcessSpec(f"worker-{index}", "worker", host, command, environment, device=device, port=port))
    return specs


def _by_host(workers: Sequence[WorkerEntry]) -> dict[str, dict[int, WorkerEntry]]:
    """Return the workers of each host, by their numbers."""
    groups: dict[str, dict[int, WorkerEntry]] = {}
    for number, worker in enumerate(workers):
        groups.setdefault(worker.host, {})[number] = worker
    return groups


def _moved(
    group: Mapping[int, WorkerEntry],
    spare: str,
    resources: JobResources,
    cluster: Mapping[str, str],
    settings: flags.Settings,
) -> dict[str, ProcessSpec]:
    """Return how a spare host starts the workers of another one in its place, by their names."""
    specs = _workers(
        [worker.model_copy(update={"host": spare}) for worker in group.values()], resources, cluster, settings
    )
    names = [f"worker-{number}" for number in group]
    return {name: replace(spec, name=name) for name, spec in zip(names, specs, strict=True)}


def device_folders(workers: Iterable[WorkerEntry]) -> list[str]:
    """The folder of each worker's logs below its host's: cpu, gpu0; cpu-1 for a second one on the same device."""
    seen: Counter[tuple[str, str]] = Counter()
    folders = []
    for worker in workers:
        place = worker.host, worker.device
        folders.append(f"{worker.device}-{seen[place]}" if seen[place] else worker.device)
        seen[place] += 1
    return folders


def _worker_settings(worker: WorkerEntry, settings: flags.Settings) -> flags.Settings:
    own: flags.Settings = {"log_dir": settings["log_dir"] / worker.host, "cpu": int(worker.device == "cpu")}
    own["gpu"] = _gpu(worker.device)
    if worker.step_time is not None:
        own["step_time"] = worker.step_time
    if worker.straggler_events:
        own["straggle"] = worker.straggler_events
    return {**settings, **own}


def _port(resources: JobResources, service: SchedulerEntry | StateServerEntry, default: int) -> int:
    """Return the port that the description gives, or a free one."""
    return service.port or resources.free_port(service.host) or default


def _python(resources: JobResources, host: str, module: str, words: Iterable[str]) -> tuple[str, ...]:
    where = resources.hosts[host]
    if where.here:
        python = str(expanded(where.entry.python)) if where.entry.python else sys.executable
    else:
        python = where.entry.python or PYTHON_THERE
    return (python, "-m", module, *words)


def _environment(resources: JobResources, host: str, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that launch has chosen, overridden by those of the description."""
    return {**chosen, **COMMON, **resources.hosts[host].entry.env}


def _gpu(device: str) -> int | None:
    return None if device == "cpu" else int(device.removeprefix("gpu"))
