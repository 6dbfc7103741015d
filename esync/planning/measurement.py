"""Measure a described cluster on its hosts: devices, network, parameter servers, state server.

The hosts are reached as launch reaches them. A failed part of the measurement is reported, and the
others continue.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import config
from ..exchange import STATISTICS, WEIGHTS
from ..launch import ssh
from ..launch.agent_pool import AgentPool
from ..launch.commands import measuring_process
from ..launch.description import Description
from ..launch.hosts import Host, locate
from ..launch.plan import plan_measurement
from ..launch.preflight import check_requests, resources_of
from ..launch.resources import HostResources
from ..launch.spec import LaunchPlan, ProcessSpec
from ..launch.user_program import MissingProgramError
from ..simulate.timing import SIZES
from . import measuring_agent
from .device_measurement import DeviceFigures, measure_devices
from .network_measurement import NetworkFigures, NetworkMeasurement, machine
from .server_measurement import ServerFigures, run_probes

#: Modules that measure a server. They run on its host, since their imports are those of a server.
SERVER_PROBE, STATE_SERVER_PROBE = (f"{__package__}.{name}" for name in ("server_probe", "state_server_probe"))


@dataclass
class Measurement:
    """The measured figures of a cluster.

    Attributes:
        devices: index of a worker in the description → figures of its device.
        servers: index of a parameter server → its costs.
        answer_time: seconds that the state server needs for an answer; None if unknown.
        network: the network between the hosts; None if all of them are one machine.
        flags: flags of the measured workers that are not necessarily in the description.
        missing: a sentence about each part that could not be measured, with the reason.
    """

    devices: dict[int, DeviceFigures] = field(default_factory=dict)
    servers: dict[int, ServerFigures] = field(default_factory=dict)
    answer_time: float | None = None
    network: NetworkFigures | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def measure(
    description: Description,
    local: HostResources,
    notify: Callable[[str], None],
    program: Sequence[str] = (),
) -> Measurement:
    """Measure a cluster, which takes about half a minute.

    Args:
        description: the cluster.
        local: this machine's cores.
        notify: tells the user what is being measured.
        program: command of the user's program, which overrides the description's.

    Raises:
        DescriptionError: the description does not make a job.
        RemoteHostError: the agent of a host does not answer.
    """
    hosts = locate(description)
    measurement = Measurement()
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="esync-plan-")))
        plan = plan_measurement(description, hosts, local, {}, program)
        absent = {host.name: reason for host in hosts.values() if not host.local and (reason := ssh.missing_key(host))}
        agents = stack.enter_context(
            AgentPool([host for host in hosts.values() if host.name not in absent], notify, measuring_agent.__name__)
        )
        resources, problems = _check(
            replace(plan, processes=(*plan.processes, *_stand_ins(description, hosts))), agents
        )
        absent |= problems
        for reason in absent.values():
            notify(f"hosts: {reason}")
            measurement.missing.append(reason)
        plan = plan_measurement(description, hosts, local, resources, program)
        local_agent = stack.enter_context(closing(measuring_agent.MeasuringAgent()))
        _measure_network(measurement, description, _present(hosts, absent), agents, local_agent, notify)
        _measure_devices(measurement, plan, absent, logs, notify)
        _measure_servers(measurement, description, plan, _present(hosts, absent), logs, notify)
    return measurement


def _failures(specs: Iterable[ProcessSpec], problems: Mapping[str, str]) -> list[str]:
    """Return a sentence about each process that could not measure."""
    return [f"{spec.name} ({spec.where}) {problems[spec.name]}" for spec in specs if spec.name in problems]


def _present(hosts: Mapping[str, Host], absent: Mapping[str, str]) -> dict[str, Host]:
    return {name: host for name, host in hosts.items() if name not in absent}


def _stand_ins(description: Description, hosts: Mapping[str, Host]) -> list[ProcessSpec]:
    """Return placeholder processes, so that the hosts of servers are checked for a server's needs."""
    roles = [("server", server.host) for server in description.servers]
    if description.state_server is not None:
        roles.append(("state server", description.state_server.host))
    return [measuring_process(role, role, hosts[name], SERVER_PROBE) for role, name in roles]


def _check(plan: LaunchPlan, agents: AgentPool) -> tuple[dict[str, HostResources], dict[str, str]]:
    """Return the resources of the hosts that can take part, and why others cannot."""
    local_hosts = {host.name: host for host in plan.log_hosts if host.local}
    problems: dict[str, str] = {}
    if plan.program is not None and local_hosts:
        try:
            plan.program.check()
        except MissingProgramError as error:
            problems = {name: f"host {name} (this machine): {error}" for name in local_hosts}
    requests = {name: request for name, request in check_requests(plan, {}, 0).items() if name in agents}
    answers, failed = agents.try_to_ask(requests, config.LAUNCH_CHECK)
    return resources_of(answers), problems | failed


def _measure_network(
    measurement: Measurement,
    description: Description,
    hosts: Mapping[str, Host],
    agents: AgentPool,
    local_agent: measuring_agent.MeasuringAgent,
    notify: Callable[[str], None],
) -> None:
    def once(names: Iterable[str]) -> list[Host]:
        return [hosts[name] for name in dict.fromkeys(names) if name in hosts]

    if len({machine(host) for host in locate(description).values()}) == 1:
        notify("network: not measured, because all processes are on one machine")
        return
    state_server = once([description.state_server.host] if description.state_server is not None else [])
    measurement.network, problems = NetworkMeasurement(agents, local_agent, notify).run(
        once(worker.host for worker in description.workers),
        once(server.host for server in description.servers),
        state_server[0] if state_server else None,
    )
    measurement.missing += problems


def _measure_devices(
    measurement: Measurement,
    plan: LaunchPlan,
    absent: Mapping[str, str],
    logs: Path,
    notify: Callable[[str], None],
) -> None:
    numbers = {spec.name: number for number, spec in enumerate(plan.workers)}
    specs = [spec for spec in plan.workers if spec.host.name not in absent]
    measurement.missing += [
        f"{spec.name} ({spec.where}) is not measured: its host cannot take part"
        for spec in plan.workers
        if spec not in specs
    ]
    figures, problems = measure_devices(specs, logs, notify)
    measurement.devices = {numbers[name]: figure for name, figure in figures.items()}
    measurement.missing += _failures(specs, problems)


def _measure_servers(
    measurement: Measurement,
    description: Description,
    plan: LaunchPlan,
    hosts: Mapping[str, Host],
    logs: Path,
    notify: Callable[[str], None],
) -> None:
    vectors = next((device.vectors for device in measurement.devices.values()), SIZES.get(plan.options.network))
    if plan.program is not None and not measurement.devices:
        vectors = None
    if vectors is None:
        measurement.missing.append("the parameter servers are not measured: no device has told how large the model is")
    specs, measured = [], dict[tuple[str, str], str]()
    for number, server in enumerate(description.servers):
        if vectors is None or server.host not in hosts or (server.host, server.device) in measured:
            continue
        words = ["--weights", str(vectors[WEIGHTS]), "--statistics", str(vectors[STATISTICS])]
        if server.device != "cpu":
            words += ["--gpu", server.device.removeprefix("gpu")]
        name = measured[server.host, server.device] = f"server-{number}"
        specs.append(measuring_process(name, "parameter server", hosts[server.host], SERVER_PROBE, words))
    state_server = description.state_server
    if state_server is not None and state_server.host in hosts:
        host = hosts[state_server.host]
        specs.append(measuring_process("state-server", "state server", host, STATE_SERVER_PROBE))
    reports, problems = run_probes(specs, logs, notify)
    measurement.missing += _failures(specs, problems)
    for number, server in enumerate(description.servers):
        report = reports.get(measured.get((server.host, server.device), ""))
        if report is not None and vectors is not None:
            measurement.servers[number] = ServerFigures.of(report["poll"], report["transfer"], vectors)
    if "state-server" in reports:
        measurement.answer_time = float(reports["state-server"]["answer_time"])
