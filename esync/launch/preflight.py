"""Checks before a job begins: can its hosts take part, and are ports and folders free?"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from .. import config
from ..algorithms.loading import digest, source
from ..checkpoints.store import refuse_earlier
from ..data import is_function
from ..runtime import user_functions
from ..runtime.files import expanded
from .agent_pool import AgentPool, RemoteHostError
from .description import Description
from .resources import HostResources
from .spec import LaunchPlan
from .user_program import MissingProgramError

#: Roles that run MXNet.
ENGINE_ROLES = {"server", "worker"}


def fixed_ports(description: Description, plan: LaunchPlan) -> dict[str | None, dict[str, int]]:
    """Return the ports that the description gives: host (None: this machine) → key in it → port."""
    services = {"scheduler": description.scheduler, "state server": description.state_server}
    ports: dict[str | None, dict[str, int]] = defaultdict(dict)
    for spec in plan.processes:
        service = services.get(spec.role)
        if service is not None and service.port:
            host = None if spec.host.local else spec.host.name
            ports[host][f"{spec.role.replace(' ', '_')}.port"] = service.port
    return ports


def check_hosts(
    plan: LaunchPlan, agents: AgentPool, claims: dict[str | None, dict[str, int]], ports: int
) -> dict[str, HostResources]:
    """Check that all hosts can take part, and return the resources of the remote ones.

    On this machine, the user's program must exist, and the checkpoint directory must not contain
    checkpoints of an earlier run.

    Args:
        plan: a preliminary plan, made without the hosts' resources.
        agents: the agents of these hosts.
        claims: see `fixed_ports`.
        ports: how many free ports to reserve on each.

    Raises:
        RemoteHostError: a host cannot take part; the message says why.
        EarlierCheckpointsError: there are checkpoints of an earlier run on this machine.
    """
    local = [host.name for host in plan.log_hosts if host.local]
    if plan.program is not None and local:
        try:
            plan.program.check()
        except MissingProgramError as error:
            raise RemoteHostError(f"host {', '.join(local)} (this machine): {error}") from None
    checkpoints = _must_have_none(plan)
    if checkpoints is not None and local:
        directory, workers = checkpoints
        refuse_earlier(expanded(directory), workers)
    return resources_of(agents.ask(check_requests(plan, claims, ports), patience(plan)))


def check_requests(plan: LaunchPlan, claims: dict[str | None, dict[str, int]], ports: int) -> dict[str, dict[str, Any]]:
    """Return the request to the agent of each remote host; see `check_hosts`."""
    checkpoints = _must_have_none(plan)
    requests: dict[str, dict[str, Any]] = {}
    chosen = plan.options.algorithm
    algorithm = (source(chosen), digest(chosen)) if source(chosen) else None
    program = (plan.program.words, plan.program.digest) if plan.program is not None else None
    data = (plan.options.dataset, plan.options.data_dir) if program is None else None
    functions = [(text, user_functions.digest(text)) for text in _functions(plan)]
    for host in plan.hosts:
        if not host.local:
            processes = (*plan.processes, *plan.stand_ins)
            roles = {spec.role for spec in processes if spec.host.name == host.name}
            requests[host.name] = {
                "do": "check",
                "ports": ports,
                "claims": claims.get(host.name, {}),
                "data": data if "worker" in roles else None,
                "engine": bool(roles & ENGINE_ROLES),
                "address": "" if "DMLC_INTERFACE" in host.entry.env else host.ip,
                "algorithm": algorithm if "worker" in roles else None,
                "program": program if "worker" in roles else None,
                "functions": functions if "worker" in roles else [],
                "checkpoints": checkpoints if "worker" in roles else None,
            }
    return requests


def resources_of(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, HostResources]:
    """Return the resources that hosts report in their answers."""
    return {name: HostResources(answer["ports"], answer["cores"]) for name, answer in answers.items()}


def _functions(plan: LaunchPlan) -> list[str]:
    """Return the user's functions that the built-in workers call."""
    if plan.program is not None:
        return []
    network, dataset = plan.options.network, plan.options.dataset
    return [*([network] if ":" in network else []), *([dataset] if is_function(dataset) else [])]


def _must_have_none(plan: LaunchPlan) -> tuple[str, int] | None:
    """Return the directory that must not contain checkpoints, and the number of workers.

    None means that checkpoints are allowed.
    """
    options = plan.options
    if not options.checkpoint_dir or options.resume or options.overwrite:
        return None
    return str(options.checkpoint_dir), len(plan.workers)


def prepare(plan: LaunchPlan, agents: AgentPool) -> None:
    """Lock the log folders on the remote hosts on which workers may run.

    Logs of an earlier run are moved aside there, except with --resume.

    Raises:
        RemoteHostError: a folder cannot be locked, for instance because another job has it.
    """
    terms = {"do": "prepare", "overwrite": plan.options.overwrite, "resume": plan.options.resume}
    requests = {
        host.name: {**terms, "folder": str(plan.mode_folder / host.name)} for host in plan.log_hosts if not host.local
    }
    agents.ask(requests, patience(plan))


def patience(plan: LaunchPlan) -> float:
    """Return the seconds to wait for a host's answer."""
    return min(config.LAUNCH_CHECK, float(plan.options.start_timeout))
