"""Turn a description into the commands of all processes.

This is a pure function, whose result can be printed or run.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import config
from ..algorithms.registry import names
from ..arguments import choose_algorithm
from ..arguments.environment import environment_of
from ..exchange.collectives import per_host_refusal
from ..exchange.collectives.process_manager import READY
from ..runtime.environment import PLACES_VARIABLE
from ..runtime.files import expanded
from ..runtime.progress import VARIABLE as PROGRESS_VARIABLE
from ..runtime.worker_environment import HostGroupName, WorkerEnvironment
from ..training.run_folder import mode_folder, run_folder, same_below
from . import flags, ssh, user_program
from .batch_shares import divided, partition_of
from .description import Description, DescriptionError, SchedulerEntry, StateServerEntry, WorkerEntry
from .folders import PROCESSES
from .hosts import Host
from .resources import HostResources, JobResources
from .spec import LaunchPlan, ProcessSpec
from .user_program import UserProgram

#: Beginning of the line that a state server prints when it accepts queries.
STATE_SERVER_READY = "listening on "
#: The state server's folder beside the logs of the processes. It is hidden, so that no log tool
#: takes it for a device's.
STATE_FOLDER = ".state-server"
#: Variables of every process, so that its output arrives while it runs, and in the encoding in which
#: launch reads it, whatever its host's locale is.
COMMON = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}
#: Flags that have no meaning for a worker that trains alone, to be measured.
NOT_ALONE = frozenset(
    {
        *("partition", "split_by_class", "redistribute", "elastic", "lease", "wait_for_replacement", "collective"),
        *("checkpoint_dir", "checkpoint_every", "keep_checkpoints", "resume", "overwrite", "compression"),
        *("target_accuracy", "reestimate_statistics"),
    }
)


def plan(
    description: Description,
    hosts: Mapping[str, Host],
    typed: Mapping[str, Any],
    here: HostResources,
    there: Mapping[str, HostResources] | None = None,
    program: Sequence[str] = (),
    seed: int | None = None,
    token: str = "job",
) -> LaunchPlan:
    """Return the plan of a job: the processes to start, and what they have in common.

    Args:
        description: the cluster.
        hosts: see `hosts.locate`.
        typed: flags of the worker that override the description's.
        here: as many ports of this machine as `ports_needed` says, and its cores.
        there: the same for hosts that are other machines. For hosts that have not been asked yet,
            the ports that the description leaves open are the defaults, or chosen by ps-lite.
        program: words of the user's program that every worker runs; it overrides the description's.
        seed: what that program is told of its seed; None tells it nothing.
        token: of this job only, up to 40 letters and digits; the workers of a host find each other
            by it.

    Raises:
        DescriptionError: the description and the flags do not make a job; the message says why.
    """
    own, settings, left_out = _program_and_settings(description, typed, program)
    options = _understood(settings, () if own else description.workers)
    remarks, services, cluster = [], [], {}
    if left_out:
        remarks.append(f"of train, {', '.join(left_out)} are the built-in worker's: the program decides on them")
    workers: Sequence[WorkerEntry] = description.workers
    free = own is not None and "mode" not in settings  # the program chooses the mode
    exchanges = len(workers) > 1 if free else options.algorithm.sends != "nothing"
    if not exchanges:
        if len(workers) > 1:
            remarks.append(f"mode {options.mode} trains on one device: the first worker of the description")
        workers = workers[:1]
    partition = partition_of(options.partition, workers)
    if partition != options.partition:
        settings["partition"] = options.partition = partition
    sizes = divided(workers, options) if description.batch_by_speed else []
    if sizes:
        remarks.append(f"batches by speed: {', '.join(map(str, sizes))} samples")
        workers = [_with_batch(worker, size / options.batch_size) for worker, size in zip(workers, sizes, strict=True)]
    resources = JobResources(hosts, here, there or {}, [worker.host for worker in workers])
    if exchanges:
        if options.collective == "ps":
            cluster = _cluster(description, resources)
            services = _services(description, resources, cluster, options)
        else:
            cluster = _ranks(description, resources)
            services = [_process_manager(description, resources, cluster)]
            if description.servers:
                remarks.append(f"no parameter servers: the workers exchange by {options.collective}")
    if own is None:
        folder = mode_folder(options)
    else:
        mode = user_program.ANY_MODE if free else options.algorithm.name
        folder = run_folder(options.log_dir, own.name, mode, options.name)
    needed = exchanges and not free and _asks_state_server(options, description)
    address = None
    if needed or (own and description.state_server):  # for the dashboard of a program, in any mode
        services.append(_state_server(description, resources, cluster, options, folder))
        address = f"{resources.address(services[-1].host.name)}:{services[-1].port}"
        remarks.append(f"dashboard: http://{address}/dashboard/")
    elif exchanges and not free and description.state_server is None and options.algorithm.without_state_server:
        remarks.append(f"no state_server in the description: {options.algorithm.without_state_server}")
    groups = _host_groups(workers, token) if _exchange_per_host(description, options, exchanges, free) else {}
    if groups:
        remarks.append(
            f"the workers of a host exchange as one: {len(_by_host(workers))} instead of {len(workers)} in a round"
        )
    elif description.per_host:
        remarks.append("per_host changes nothing: no host has two workers")
    told = replace(
        _told(options, folder),
        algorithm=settings.get("mode") if own else None,  # the built-in worker has it on its command line
        seed=seed,
        state_server=address,
        collective=options.collective if exchanges else config.COLLECTIVE,
        per_host=max((len(group.ranks) for group in groups.values()), default=1),
    )
    job = _WorkerJob(cluster, told, own, settings, groups, sizes)
    specs = _workers(dict(enumerate(workers)), resources, job)
    spares: dict[str, dict[str, ProcessSpec]] = {}
    if description.spare_hosts and exchanges and options.collective == "ps":
        alone = replace(job, groups={})
        for spare in description.spare_hosts:
            spares[spare] = {}
            for group in _by_host(workers).values():
                resources = JobResources(hosts, here, there or {}, [spare] * len(group))
                moved = {number: each.model_copy(update={"host": spare}) for number, each in group.items()}
                spares[spare] |= {spec.name: spec for spec in _workers(moved, resources, alone)}
        remarks.append(f"spare hosts, for the workers of hosts that do not answer: {', '.join(spares)}")
    elif description.spare_hosts:
        remarks.append("spare hosts are not used: without parameter servers nobody can take a worker's place")
    return LaunchPlan((*services, *specs), options, folder, tuple(remarks), spares, own)


def plan_measurement(
    description: Description,
    hosts: Mapping[str, Host],
    typed: Mapping[str, Any],
    here: HostResources,
    there: Mapping[str, HostResources] | None = None,
    program: Sequence[str] = (),
) -> LaunchPlan:
    """Return a plan whose processes are the cluster's workers, to measure their devices.

    Each of them trains alone, as in mode local, and its trainer reports how long its iterations take
    until it is told to end (`measure` of `WorkerEnvironment`). The arguments are those of `plan`.

    Raises:
        DescriptionError: the description and the flags do not make a job; the message says why.
    """
    own, chosen, _ = _program_and_settings(description, typed, program)
    _understood(chosen)  # what would not train as it is described is refused, not measured
    kept = {name: value for name, value in chosen.items() if name not in NOT_ALONE}
    settings = flags.merge(kept, {"mode": "local", "no_evaluation": True, "no_export": True, "quiet": True})
    options = _understood(settings)
    folder = Path(options.log_dir)
    resources = JobResources(hosts, here, there or {}, [worker.host for worker in description.workers])
    job = _WorkerJob({}, replace(_told(options, folder), measure=True), own, settings)
    devices = [worker.model_copy(update={"straggle": []}) for worker in description.workers]
    return LaunchPlan(tuple(_workers(dict(enumerate(devices)), resources, job)), options, folder, program=own)


def _program_and_settings(
    description: Description, typed: Mapping[str, Any], words: Sequence[str]
) -> tuple[UserProgram | None, flags.Settings, list[str]]:
    """Return the user's program, if there is one, the flags of the job, and those that it leaves out."""
    described, left_out = description.train, list[str]()
    words = words or description.program
    try:
        if words:
            user_program.refuse_training_flags(typed)
            if description.batch_by_speed:
                raise DescriptionError("batch_by_speed: a program makes its own batches; leave it out")
            if not description.program:
                described, left_out = user_program.cluster_settings(described)
        return UserProgram.of(words) if words else None, flags.merge(described, typed), left_out
    except flags.FlagError as error:
        raise DescriptionError(f"train: {error}") from None


def _understood(settings: flags.Settings, workers: Iterable[WorkerEntry] = ()) -> argparse.Namespace:
    """Return the options that settings make, also beside what the description says of the workers."""
    events = [event for worker in workers for event in worker.straggler_events]
    try:
        return flags.understood({**settings, "straggle": events})
    except flags.FlagError as error:
        raise DescriptionError(f"train: {error}") from None


def measuring_process(name: str, role: str, host: Host, module: str, words: Iterable[str] = ()) -> ProcessSpec:
    """Return a process that runs a module of this package on a host, and reports what it measures."""
    environment = {PROGRESS_VARIABLE: "json", **COMMON, **host.entry.env}
    return ProcessSpec(name, role, host, (_python(host), "-m", module, *words), environment)


def ports_needed(description: Description) -> int:
    """Return how many free ports of each host `plan` may use at most."""
    return 2 + len(description.servers) + len(description.workers)


def _cluster(description: Description, resources: JobResources) -> dict[str, str]:
    """Return the variables by which MXNet's processes find one another."""
    scheduler = description.scheduler
    return {
        "DMLC_PS_ROOT_URI": resources.address(scheduler.host),
        "DMLC_PS_ROOT_PORT": str(_port(resources, scheduler, config.SCHEDULER_PORT)),
        "DMLC_NUM_SERVER": str(len(description.servers)),
        "DMLC_NUM_WORKER": str(len(description.workers)),
    }


def _ranks(description: Description, resources: JobResources) -> dict[str, str]:
    """Return the variables of a collective's ranks: where they meet, and how many they are."""
    host = description.scheduler.host
    port = _port(resources, description.scheduler, config.SCHEDULER_PORT)
    return {"PMI_PORT": f"{resources.address(host)}:{port}", "DMLC_NUM_WORKER": str(len(description.workers))}


def _process_manager(description: Description, resources: JobResources, cluster: Mapping[str, str]) -> ProcessSpec:
    """Return the process at which a collective's ranks meet; it takes the scheduler's place."""
    host, port = description.scheduler.host, int(cluster["PMI_PORT"].rpartition(":")[2])
    words = ["--ranks", cluster["DMLC_NUM_WORKER"], "--host", resources.listen_address, "--port", str(port)]
    command = _module(resources, host, "esync.exchange.collectives.process_manager", words)
    environment = _environment(resources, host, {})
    return ProcessSpec(
        "process-manager", "scheduler", resources.hosts[host], command, environment, ready=READY, port=port
    )


def _services(
    description: Description, resources: JobResources, cluster: Mapping[str, str], options: argparse.Namespace
) -> list[ProcessSpec]:
    """Return the scheduler and the parameter servers."""
    told = WorkerEnvironment(start_timeout=options.start_timeout)
    host = description.scheduler.host
    workers = zip(description.workers, device_folders(description.workers), strict=True)
    places = {
        "workers": [f"{worker.host}/{device}" for worker, device in workers],
        "servers": [(resources.address(server.host), server.host) for server in description.servers],
    }
    chosen = {"DMLC_ROLE": "scheduler", **cluster, **resources.interface(host), **told.variables()}
    chosen |= {PLACES_VARIABLE: json.dumps(places), PROGRESS_VARIABLE: "json"}
    port = int(cluster["DMLC_PS_ROOT_PORT"])
    specs = [
        ProcessSpec(
            "scheduler",
            "scheduler",
            resources.hosts[host],
            _module(resources, host, "esync.scheduler"),
            _environment(resources, host, chosen),
            port=port,
        )
    ]
    for index, server in enumerate(description.servers):
        told = replace(told, round_timeout=options.round_timeout, device=server.device)
        place = {**resources.interface(server.host), **resources.port_variable(server.host)}
        chosen = {"DMLC_ROLE": "server", **cluster, **place, **resources.threads(server.host), **told.variables()}
        environment = _environment(resources, server.host, {**chosen, PROGRESS_VARIABLE: "json"})
        command = _module(resources, server.host, "esync.server")
        where = resources.hosts[server.host]
        port = int(environment.get("PORT", 0))
        specs.append(ProcessSpec(f"server-{index}", "server", where, command, environment, port=port))
    return specs


def _asks_state_server(options: argparse.Namespace, description: Description) -> bool:
    """Return whether the workers will need a state server."""
    known = "known" if description.state_server is not None else ""
    return choose_algorithm(argparse.Namespace(**{**vars(options), "state_server_ip": known})).asks_state_server


def _state_server(
    description: Description,
    resources: JobResources,
    cluster: Mapping[str, str],
    options: argparse.Namespace,
    folder: Path,
) -> ProcessSpec:
    """Return the state server.

    Raises:
        DescriptionError: the description has none.
    """
    section = description.state_server
    if section is None:
        other = options.algorithm.instead_of_state_server or "choose another mode"
        raise DescriptionError(
            f"state_server: it is missing, and mode {options.mode} asks it; add state_server: {{host: localhost}}, or "
            f"{other}"
        )
    port = _port(resources, section, int(config.STATE_SERVER_PORT))
    words = ["--state-dir", str(folder / PROCESSES / STATE_FOLDER)]
    words += ["--host", resources.listen_address, "--port", str(port)]
    return ProcessSpec(
        "state-server",
        "state server",
        resources.hosts[section.host],
        _module(resources, section.host, "esync.state_server", words),
        _environment(resources, section.host, cluster),  # it asks the scheduler who is missing
        ready=STATE_SERVER_READY,
        endless=True,
        port=port,
        resumable=True,
    )


@dataclass(frozen=True)
class _WorkerJob:
    """What all workers of a job have in common.

    Attributes:
        cluster: variables that say where the other processes are; empty in mode local.
        told: what the environment says on all devices; its folders are the mode's.
        program: the user's, in the place of the built-in worker.
        settings: flags of the job; the built-in worker has those on its command line that its
            environment does not say.
        groups: number of a worker that exchanges as one with others of its host → these.
        batch_sizes: samples of each worker's batches, where they differ.
    """

    cluster: Mapping[str, str]
    told: WorkerEnvironment
    program: UserProgram | None
    settings: flags.Settings
    groups: Mapping[int, HostGroupName] = field(default_factory=dict)
    batch_sizes: Sequence[int] = ()

    def command(self, number: int, python: str) -> tuple[str, ...]:
        """Return what the worker of this number runs on a host with this Python."""
        if self.program is not None:
            return self.program.command(python)
        sizes = {"batch_size": self.batch_sizes[number]} if self.batch_sizes else {}
        said = user_program.CLUSTER_FLAGS - {"mode"}
        own = {name: value for name, value in {**self.settings, **sizes}.items() if name not in said}
        return (python, "-m", "esync.worker", *flags.to_arguments(own))


def _told(options: argparse.Namespace, folder: Path) -> WorkerEnvironment:
    """Return what the environment says on all devices of a job whose logs are in a folder."""
    events = options.tensorboard
    if events is not None:
        events = str(same_below(events, folder, options.log_dir))
    return replace(environment_of(options), log_dir=str(folder), tensorboard=events)


def _workers(workers: Mapping[int, WorkerEntry], resources: JobResources, job: _WorkerJob) -> list[ProcessSpec]:
    """Return workers, given by their numbers in the description."""
    specs = []
    for (number, worker), device in zip(workers.items(), device_folders(workers.values()), strict=True):
        chosen, slot = dict(job.cluster), None
        if "PMI_PORT" in job.cluster:
            chosen["PMI_ID"] = str(number)
        elif job.cluster:
            chosen |= {"DMLC_ROLE": "worker", **resources.interface(worker.host)}
            chosen |= resources.port_variable(worker.host)
            slot = number
        told = replace(
            job.told,
            rank=slot,
            device=worker.device,
            step_time=worker.step_time or job.told.step_time,
            straggler_events=worker.straggler_events,
            log_dir=str(Path(job.told.log_dir or "") / worker.host),
            tensorboard=job.told.tensorboard and str(Path(job.told.tensorboard) / worker.host),
            device_folder=device,
            host_group=job.groups.get(number),
        )
        chosen |= {**resources.threads(worker.host, worker.threads), PROGRESS_VARIABLE: "json", **told.variables()}
        environment = _environment(resources, worker.host, chosen)
        host = resources.hosts[worker.host]
        specs.append(
            ProcessSpec(
                f"worker-{number}",
                "worker",
                host,
                job.command(number, _python(host)),
                environment,
                device=device,
                port=int(environment.get("PORT", 0)),
                own_program=job.program is not None,
            )
        )
    return specs


def _with_batch(worker: WorkerEntry, share: float) -> WorkerEntry:
    """Return a worker with a share of the usual batch; one that stands for a slower device is faster by that."""
    return worker.model_copy(update={"step_time": worker.step_time and worker.step_time * share})


def _by_host(workers: Sequence[WorkerEntry]) -> dict[str, dict[int, WorkerEntry]]:
    """Return the workers of each host, by their indices."""
    groups: dict[str, dict[int, WorkerEntry]] = {}
    for number, worker in enumerate(workers):
        groups.setdefault(worker.host, {})[number] = worker
    return groups


def _exchange_per_host(description: Description, options: argparse.Namespace, exchanges: bool, free: bool) -> bool:
    """Return whether workers that share a host exchange as one.

    Args:
        description: of the cluster.
        options: the workers'.
        exchanges: whether the workers exchange anything.
        free: whether the program chooses the mode, which its Trainer then checks.

    Raises:
        DescriptionError: the description asks for it, but the mode or the collective cannot do it.
    """
    if not description.per_host:
        return False
    check_per_host(options, any_mode=free)
    return exchanges


def check_per_host(options: argparse.Namespace, any_mode: bool = False) -> None:
    """Check that the workers of a host can exchange as one.

    Args:
        options: the workers'.
        any_mode: whether a user's program chooses the mode, so that the one in the options does not
            count.

    Raises:
        DescriptionError: the mode or the collective cannot do it.
    """
    algorithm = options.algorithm
    if options.collective != "ps":
        raise DescriptionError(per_host_refusal(options.collective))
    if not any_mode and algorithm.sends == "nothing":
        raise DescriptionError(f"per_host: mode {algorithm.name} exchanges nothing; leave per_host out")
    if not any_mode and not algorithm.synchronous:
        rounds = ", ".join(names(lambda each: each.synchronous and each.sends != "nothing"))
        raise DescriptionError(
            f"per_host: mode {algorithm.name} uses what each worker sends at once, and only rounds can be exchanged by "
            f"host; leave per_host out, or choose a mode with rounds: {rounds}"
        )


def _host_groups(workers: Sequence[WorkerEntry], token: str) -> dict[int, HostGroupName]:
    """Return rank of a worker → the workers of its host, where there are several."""
    groups: dict[int, HostGroupName] = {}
    for index, group in enumerate(_by_host(workers).values()):
        if len(group) > 1:
            groups |= dict.fromkeys(group, HostGroupName(f"{token}-{index}", tuple(group)))
    return groups


def device_folders(workers: Iterable[WorkerEntry]) -> list[str]:
    """Return the folder of each worker's logs, below its host's.

    It is cpu or gpu0, and cpu-1 for a second worker on the same device.
    """
    seen: Counter[tuple[str, str]] = Counter()
    folders = []
    for worker in workers:
        place = worker.host, worker.device
        folders.append(f"{worker.device}-{seen[place]}" if seen[place] else worker.device)
        seen[place] += 1
    return folders


def _port(resources: JobResources, service: SchedulerEntry | StateServerEntry, default: int) -> int:
    """Return the port that the description gives, otherwise a free one, otherwise the default."""
    return service.port or resources.free_port(service.host) or default


def _python(host: Host) -> str:
    """Return the Python of a host."""
    if not host.here:
        return ssh.python_of(host)
    return str(expanded(host.entry.python)) if host.entry.python else sys.executable


def _module(resources: JobResources, host: str, module: str, words: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the command that runs a module of this package on a host."""
    return (_python(resources.hosts[host]), "-m", module, *words)


def _environment(resources: JobResources, host: str, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that launch sets, overridden by those of the description."""
    return {**chosen, **COMMON, **resources.hosts[host].entry.env}
