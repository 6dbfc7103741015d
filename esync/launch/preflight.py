"""Checks before a job begins: ask its hosts whether they can take part, and reserve ports and folders."""

from collections import defaultdict
from typing import Any

from .. import config
from ..algorithms.loading import digest, source
from ..checkpoints.store import refuse_earlier
from ..runtime.files import expanded
from .agent_pool import AgentPool
from .description import Description
from .resources import HostResources
from .spec import LaunchPlan

#: Roles that run MXNet.
ENGINE_ROLES = {"server", "worker"}


def fixed_ports(description: Description, plan: LaunchPlan) -> dict[str | None, dict[str, int]]:
    """Return the ports that the description names, by host; None stands for this machine."""
    services = {"scheduler": description.scheduler, "state server": description.state_server}
    found: dict[str | None, dict[str, int]] = defaultdict(dict)
    for spec in plan.processes:
        service = services.get(spec.role)
        if service is not None and service.port:
            host = None if spec.host.here else spec.host.name
            found[host][f"{spec.role.replace(' ', '_')}.port"] = service.port
    return found


def check_hosts(
    plan: LaunchPlan, agents: AgentPool, claims: dict[str | None, dict[str, int]], ports: int
) -> dict[str, HostResources]:
    """Ask all remote hosts whether they can take part; return their resources.

    This machine and the others are also asked whether a run may begin in its directory of
    checkpoints.

    Args:
        plan: a first one, made without them.
        agents: of these hosts.
        claims: see `fixed_ports`.
        ports: how many free ones are wanted of each.

    Raises:
        RemoteHostError: some of them cannot, and why.
        EarlierCheckpointsError: there are checkpoints of an earlier run on this machine.
    """
    checkpoints = _must_have_none(plan)
    if checkpoints is not None and any(host.here for host in plan.log_hosts):
        directory, workers = checkpoints
        refuse_earlier(expanded(directory), workers)
    requests: dict[str, dict[str, Any]] = {}
    chosen = plan.options.algorithm
    algorithm = (source(chosen), digest(chosen)) if source(chosen) else None
    for host in plan.hosts:
        if not host.here:
            processes = (*plan.processes, *plan.stand_ins)
            roles = {spec.role for spec in processes if spec.host.name == host.name}
            requests[host.name] = {
                "do": "check",
                "ports": ports,
                "claims": claims.get(host.name, {}),
                "data": (plan.options.data_dir, plan.options.dataset) if "worker" in roles else None,
                "engine": bool(roles & ENGINE_ROLES),
                "address": "" if "DMLC_INTERFACE" in host.entry.env else host.ip,
                "algorithm": algorithm if "worker" in roles else None,
                "checkpoints": checkpoints if "worker" in roles else None,
            }
    answers = agents.ask(requests, patience(plan))
    return {name: HostResources(answer["ports"], answer["cores"]) for name, answer in answers.items()}


def _must_have_none(plan: LaunchPlan) -> tuple[str, int] | None:
    """Return the directory in which no checkpoints may be, and the number of workers; None: there may be some."""
    options = plan.options
    if not options.checkpoint_dir or options.resume or options.overwrite:
        return None
    return str(options.checkpoint_dir), len(plan.workers)


def prepare(plan: LaunchPlan, agents: AgentPool) -> None:
    """Lock the log folders on the hosts that workers may run on.

    An earlier run's logs are moved aside there, but for --resume.

    Raises:
        RemoteHostError: they cannot, for instance because another job has them.
    """
    terms = {"do": "prepare", "overwrite": plan.options.overwrite, "resume": plan.options.resume}
    requests = {
        host.name: {**terms, "folder": str(plan.mode_folder / host.name)} for host in plan.log_hosts if not host.here
    }
    agents.ask(requests, patience(plan))


def patience(plan: LaunchPlan) -> float:
    """Return the seconds to wait for a host's answer."""
    return min(config.LAUNCH_CHECK, float(plan.options.start_timeout))
