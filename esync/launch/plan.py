"""Turn a description into the commands of all processes.

This is a pure function, whose result can be printed or run.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import config
from ..arguments import choose_algorithm, presets
from ..runtime.batch_sizes import StepTime
from ..training.run_folder import mode_folder, run_folder
from . import flags, services, user_program
from .batch_shares import check_batch_by_speed, described_times, divides_by_speed, partition_of
from .description import Description, DescriptionError, WorkerEntry
from .host_groups import by_host, check_per_host, exchanges_per_host, host_groups
from .hosts import Host
from .resources import HostResources, JobResources
from .spec import LaunchPlan, ProcessSpec
from .user_program import UserProgram
from .workers import WorkerJob, common_environment, worker_specs

#: Flags that have no meaning for a worker that trains alone, to be measured.
CLUSTER_FLAGS = frozenset(
    {
        *("partition", "split_by_class", "redistribute", "elastic", "lease", "wait_for_replacement", "collective"),
        *("checkpoint_dir", "checkpoint_every", "keep_checkpoints", "resume", "overwrite", "compression"),
        *("target_accuracy", "reestimate_statistics", "weight_average"),
    }
)


def plan(
    description: Description,
    hosts: Mapping[str, Host],
    typed: Mapping[str, Any],
    local: HostResources,
    remote: Mapping[str, HostResources] | None = None,
    program: Sequence[str] = (),
    seed: int | None = None,
    token: str = "job",
) -> LaunchPlan:
    """Return the plan of a job: the processes to start, and what they have in common.

    Args:
        description: the cluster.
        hosts: see `hosts.locate`.
        typed: flags of the worker that override the description's.
        local: free ports of this machine, as many as `services.ports_needed` returns, and its cores.
        remote: the same for the other machines, by the names of their hosts. For a missing host, the
            ports that the description leaves open are the defaults, or chosen by ps-lite.
        program: the user's program and its arguments, which every worker runs; it overrides the
            description's.
        seed: seed to pass to that program; None passes none.
        token: identifier of the job, up to 40 letters and digits, by which the workers of a host
            find one another.

    Raises:
        DescriptionError: the description and the flags do not make a job; the message says why.
    """
    program_words, settings, left_out = _program_and_settings(description, typed, program)
    options = _understood(settings, typed, program_words, description.workers)
    remarks, processes, cluster = [], list[ProcessSpec](), {}
    if left_out:
        remarks.append(f"left to the program, of the description's train: {', '.join(left_out)}")
    if not program_words and (remark := flags.rate_remark(description.train, options)):
        remarks.append(remark)
    if (name := description.train.get("preset")) and "preset" not in settings:
        remarks.append(f"mode {options.mode} leaves out the description's preset {name} with all of its flags")
    preset = presets.settings_of(settings.get("preset")) if program_words else {}
    if unused := [name for name in preset if not user_program.applies(name, settings)]:
        group = " (a network with batch norm needs group norm in its place)" if "normalization" in unused else ""
        remarks.append(f"left to the program, of the preset: {', '.join(unused)}{group}")
    workers: Sequence[WorkerEntry] = description.workers
    any_mode = program_words is not None and "mode" not in settings  # the program chooses the mode
    exchanges = len(workers) > 1 if any_mode else options.algorithm.sends != "nothing"
    if not exchanges:
        if len(workers) > 1:
            remarks.append(f"mode {options.mode} trains on one device: the first worker of the description")
        workers = workers[:1]
    partition = partition_of(options.partition, workers)
    if partition != options.partition:
        settings["partition"] = options.partition = partition
    times: tuple[StepTime, ...] = ()
    by_speed, remark = divides_by_speed(description, options, program_words is not None)
    if exchanges and remark:
        remarks.append(remark)
    if exchanges and by_speed:
        if not any_mode:
            check_batch_by_speed(options)
        times = described_times(workers)
        if program_words is None:
            sizes = choose_algorithm(options).batch_division.sizes(options.batch_size, times)
            remarks.append(f"batches by speed: {', '.join(map(str, sizes))} samples at first")
        else:
            remarks.append("batches by speed, if the program asks its trainer for their size")
    resources = JobResources(hosts, local, remote or {}, [worker.host for worker in workers])
    if exchanges:
        if options.collective == "ps":
            cluster = services.cluster_variables(description, resources)
            processes = services.scheduler_and_servers(description, resources, cluster, options)
        else:
            cluster = services.collective_variables(description, resources)
            processes = [services.process_manager(description, resources, cluster)]
            if description.servers:
                remarks.append(f"no parameter servers: the workers exchange by {options.collective}")
    if program_words is None:
        folder = mode_folder(options)
    else:
        mode = user_program.ANY_MODE if any_mode else options.algorithm.name
        folder = run_folder(options.log_dir, program_words.name, mode, options.name)
    needed = exchanges and not any_mode and services.needs_state_server(options, description)
    address = None
    if needed or (program_words and description.state_server):  # for the dashboard of a program, in any mode
        processes.append(services.state_server(description, resources, cluster, options, folder))
        address = f"{resources.address(processes[-1].host.name)}:{processes[-1].port}"
        remarks.append(f"dashboard: http://{address}/dashboard/")
    elif exchanges and not any_mode and description.state_server is None and options.algorithm.without_state_server:
        remarks.append(f"no state_server in the description: {options.algorithm.without_state_server}")
    per_host = exchanges_per_host(description, options)
    if per_host:
        check_per_host(options, any_mode)
    groups = host_groups(workers, token) if per_host and exchanges else {}
    if groups:
        remarks.append(
            f"the workers of a host exchange as one: {len(by_host(workers))} instead of {len(workers)} in a round"
        )
    elif description.per_host:
        remarks.append("per_host changes nothing: no host has two workers")
    if description.preemption_notice is not None and not options.checkpoint_dir:
        raise DescriptionError("preemption_notice: there is nothing to go on from without --checkpoint-dir")
    environment = replace(
        common_environment(options, folder),
        preemption=description.preemption_notice is not None,
        # The built-in worker has both on its command line.
        algorithm=settings.get("mode") if program_words else None,
        algorithm_options=user_program.algorithm_options(settings) if program_words else None,
        seed=seed,
        state_server=address,
        collective=options.collective if exchanges else config.COLLECTIVE,
        per_host=max((len(group.ranks) for group in groups.values()), default=1),
        step_times=times,
    )
    job = WorkerJob(cluster, environment, program_words, settings, groups)
    specs = worker_specs(dict(enumerate(workers)), resources, job)
    spares: dict[str, dict[str, ProcessSpec]] = {}
    if description.spare_hosts and exchanges and options.collective == "ps":
        ungrouped = replace(job, groups={})
        for spare in description.spare_hosts:
            spares[spare] = {}
            for members in by_host(workers).values():
                resources = JobResources(hosts, local, remote or {}, [spare] * len(members))
                moved = {number: worker.model_copy(update={"host": spare}) for number, worker in members.items()}
                spares[spare] |= {spec.name: spec for spec in worker_specs(moved, resources, ungrouped)}
        remarks.append(f"spare hosts, for the workers of hosts that do not answer: {', '.join(spares)}")
    elif description.spare_hosts:
        remarks.append("spare hosts are not used: without parameter servers nobody can take a worker's place")
    notice = description.preemption_notice
    return LaunchPlan((*processes, *specs), options, folder, tuple(remarks), spares, program_words, notice)


def plan_measurement(
    description: Description,
    hosts: Mapping[str, Host],
    local: HostResources,
    remote: Mapping[str, HostResources] | None = None,
    program: Sequence[str] = (),
) -> LaunchPlan:
    """Return a plan whose processes are the cluster's workers, to measure their devices.

    Each worker trains alone, as in mode local, and its trainer reports the time of its iterations
    until launch ends it (`measure` of `WorkerEnvironment`). The arguments are those of `plan`.

    Raises:
        DescriptionError: the description does not make a job; the message says why.
    """
    program_words, chosen, _ = _program_and_settings(description, {}, program)
    _understood(chosen, {}, program_words)  # flags with which the job would not train are refused, not measured
    applicable = {name: value for name, value in chosen.items() if name not in CLUSTER_FLAGS}
    settings = flags.merge(applicable, {"mode": "local", "no_evaluation": True, "no_export": True, "quiet": True})
    options = _understood(settings, {}, program_words)
    folder = Path(options.log_dir)
    resources = JobResources(hosts, local, remote or {}, [worker.host for worker in description.workers])
    job = WorkerJob({}, replace(common_environment(options, folder), measure=True), program_words, settings)
    devices = [worker.model_copy(update={"straggle": []}) for worker in description.workers]
    specs = worker_specs(dict(enumerate(devices)), resources, job)
    return LaunchPlan(tuple(specs), options, folder, program=program_words)


def _program_and_settings(
    description: Description, typed: Mapping[str, Any], words: Sequence[str]
) -> tuple[UserProgram | None, flags.Settings, list[str]]:
    """Return the user's program, if there is one, the flags of the job, and the names of flags left out."""
    described, left_out = description.train, list[str]()
    words = words or description.program
    try:
        if words:
            if not description.program:
                described, left_out = user_program.cluster_settings(described)
            user_program.refuse_training_flags(typed, described)
        return UserProgram.of(words) if words else None, flags.merge(described, typed), left_out
    except flags.FlagError as error:
        raise flags.refusal(error, typed) from None


def _understood(
    settings: flags.Settings,
    typed: Mapping[str, Any],
    program: UserProgram | None,
    workers: Sequence[WorkerEntry] = (),
) -> argparse.Namespace:
    """Return the options that a worker reads from settings and from the stragglers of the description.

    With a user's program, only the settings are read; how long it trains is up to the program, so that
    any number of epochs stands for it where an option of the mode needs one.
    """
    workers, length = ((), {"epochs": 1.0}) if program else (workers, {})
    events = [event for worker in workers for event in worker.straggler_events]
    try:
        options = flags.understood({**length, **settings, "straggle": events})
        if workers:
            flags.check_workers(options, len(workers))
        return options
    except flags.FlagError as error:
        raise flags.refusal(error, typed) from None
