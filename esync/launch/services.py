"""The services of a job: scheduler, parameter servers, process manager and state server."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from .. import config
from ..arguments import choose_algorithm
from ..exchange.collectives.process_manager import READY
from ..runtime.environment import PLACES_VARIABLE
from ..runtime.progress import VARIABLE as PROGRESS_VARIABLE
from ..runtime.worker_environment import WorkerEnvironment
from .commands import environment, module_command
from .description import Description, DescriptionError, SchedulerEntry, StateServerEntry
from .folders import PROCESSES
from .resources import JobResources
from .spec import ProcessSpec
from .workers import device_folders

#: Beginning of the line that a state server prints when it accepts queries.
STATE_SERVER_READY = "listening on "
#: The state server's folder beside the logs of the processes. It is hidden, so that no log tool
#: takes it for a device's.
STATE_FOLDER = ".state-server"


def ports_needed(description: Description) -> int:
    """Return the largest number of free ports that a plan uses on each host."""
    return 2 + len(description.servers) + len(description.workers)


def cluster_variables(description: Description, resources: JobResources) -> dict[str, str]:
    """Return the variables by which MXNet's processes find one another."""
    scheduler = description.scheduler
    return {
        "DMLC_PS_ROOT_URI": resources.address(scheduler.host),
        "DMLC_PS_ROOT_PORT": str(_port(resources, scheduler, config.SCHEDULER_PORT)),
        "DMLC_NUM_SERVER": str(len(description.servers)),
        "DMLC_NUM_WORKER": str(len(description.workers)),
    }


def collective_variables(description: Description, resources: JobResources) -> dict[str, str]:
    """Return the variables of a collective's ranks: where they meet, and how many there are."""
    host = description.scheduler.host
    port = _port(resources, description.scheduler, config.SCHEDULER_PORT)
    return {"PMI_PORT": f"{resources.address(host)}:{port}", "DMLC_NUM_WORKER": str(len(description.workers))}


def process_manager(description: Description, resources: JobResources, cluster: Mapping[str, str]) -> ProcessSpec:
    """Return the process at which a collective's ranks meet; it runs where the scheduler would."""
    host, port = resources.hosts[description.scheduler.host], int(cluster["PMI_PORT"].rpartition(":")[2])
    words = ["--ranks", cluster["DMLC_NUM_WORKER"], "--host", resources.listen_address, "--port", str(port)]
    command = module_command(host, "esync.exchange.collectives.process_manager", words)
    return ProcessSpec("process-manager", "scheduler", host, command, environment(host, {}), ready=READY, port=port)


def scheduler_and_servers(
    description: Description, resources: JobResources, cluster: Mapping[str, str], options: argparse.Namespace
) -> list[ProcessSpec]:
    """Return the scheduler and the parameter servers."""
    return [
        _scheduler(description, resources, cluster, options),
        *(_server(index, description, resources, cluster, options) for index in range(len(description.servers))),
    ]


def _scheduler(
    description: Description, resources: JobResources, cluster: Mapping[str, str], options: argparse.Namespace
) -> ProcessSpec:
    name = description.scheduler.host
    host = resources.hosts[name]
    workers = zip(description.workers, device_folders(description.workers), strict=True)
    places = {
        "workers": [f"{worker.host}/{device}" for worker, device in workers],
        "servers": [(resources.address(server.host), server.host) for server in description.servers],
    }
    variables = {
        "DMLC_ROLE": "scheduler",
        **cluster,
        **resources.interface(name),
        **WorkerEnvironment(start_timeout=options.start_timeout).variables(),
        PLACES_VARIABLE: json.dumps(places),
        PROGRESS_VARIABLE: "json",
    }
    return ProcessSpec(
        "scheduler",
        "scheduler",
        host,
        module_command(host, "esync.scheduler"),
        environment(host, variables),
        port=int(cluster["DMLC_PS_ROOT_PORT"]),
    )


def _server(
    index: int,
    description: Description,
    resources: JobResources,
    cluster: Mapping[str, str],
    options: argparse.Namespace,
) -> ProcessSpec:
    server = description.servers[index]
    host = resources.hosts[server.host]
    settings = WorkerEnvironment(
        start_timeout=options.start_timeout, round_timeout=options.round_timeout, device=server.device
    )
    variables = {
        "DMLC_ROLE": "server",
        **cluster,
        **resources.interface(server.host),
        **resources.port_variable(server.host),
        **resources.threads(server.host),
        **settings.variables(),
        PROGRESS_VARIABLE: "json",
    }
    chosen = environment(host, variables)
    command = module_command(host, "esync.server")
    return ProcessSpec(f"server-{index}", "server", host, command, chosen, port=int(chosen.get("PORT", 0)))


def needs_state_server(options: argparse.Namespace, description: Description) -> bool:
    """Return whether the workers query a state server."""
    address = "known" if description.state_server is not None else ""
    return choose_algorithm(argparse.Namespace(**{**vars(options), "state_server_ip": address})).asks_state_server


def state_server(
    description: Description,
    resources: JobResources,
    cluster: Mapping[str, str],
    options: argparse.Namespace,
    folder: Path,
) -> ProcessSpec:
    """Return the state server of a job whose logs are in `folder`.

    Raises:
        DescriptionError: the description has none.
    """
    section = description.state_server
    if section is None:
        remedy = options.algorithm.instead_of_state_server or "choose another mode"
        raise DescriptionError(
            f"state_server: it is missing, and mode {options.mode} asks it; add state_server: {{host: localhost}}, or "
            f"{remedy}"
        )
    host, port = resources.hosts[section.host], _port(resources, section, int(config.STATE_SERVER_PORT))
    words = ["--state-dir", str(folder / PROCESSES / STATE_FOLDER)]
    words += ["--host", resources.listen_address, "--port", str(port)]
    return ProcessSpec(
        "state-server",
        "state server",
        host,
        module_command(host, "esync.state_server", words),
        environment(host, cluster),  # it asks the scheduler which processes are missing
        ready=STATE_SERVER_READY,
        endless=True,
        port=port,
        resumable=True,
    )


def _port(resources: JobResources, service: SchedulerEntry | StateServerEntry, default: int) -> int:
    """Return the port that the description gives, otherwise a free one, otherwise the default."""
    return service.port or resources.free_port(service.host) or default
