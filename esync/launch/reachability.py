"""Check before a job begins that its hosts can reach one another's ports.

Every host listens for a moment on the ports that its processes will use, and every other host
connects to them. A firewall in between or a wrong address is thus reported within seconds instead
of after --start-timeout.
"""

from collections import defaultdict

from .agent_pool import AgentPool, RemoteHostError
from .preflight import patience
from .remote_agent import Agent
from .spec import LaunchPlan

#: Name of a host, address, port.
Endpoint = tuple[str, str, int]


def try_paths(plan: LaunchPlan, agents: AgentPool) -> None:
    """Try every path from a host to a port of another host.

    Raises:
        RemoteHostError: a host cannot be reached; the message has a sentence for each pair.
    """
    hosts = plan.hosts
    if all(host.local for host in hosts):
        return
    spares = [next(iter(specs.values())) for specs in plan.spares.values()]
    processes = [*plan.processes, *(spec for spec in spares if not spec.host.local)]
    endpoints: list[Endpoint] = [
        (spec.host.name, spec.host.ip, spec.port) for spec in processes if spec.port and spec.host.ip
    ]
    local = Agent()
    try:
        _request(
            plan, agents, local, "listen", {host.name: [e for e in endpoints if e[0] == host.name] for host in hosts}
        )
        targets = {host.name: [e for e in endpoints if e[0] != host.name] for host in hosts}
        failed = _request(plan, agents, local, "reach", targets)
        _request(plan, agents, local, "stop_listening", {host.name: [] for host in hosts})
    finally:
        local.close()
    if failed:
        raise RemoteHostError("\n".join(failed))


def _request(
    plan: LaunchPlan, agents: AgentPool, local: Agent, action: str, lists: dict[str, list[Endpoint]]
) -> list[str]:
    """Have all hosts listen at endpoints, or connect to them; return a sentence for each failure."""
    requests = {host.name: {"do": action, "endpoints": lists[host.name]} for host in plan.hosts}
    agents.send({host.name: requests[host.name] for host in plan.hosts if not host.local})
    answers = {}
    for host in plan.hosts:
        if host.local:
            answers[host.name] = local.answer(requests[host.name])
            if "error" in answers[host.name]:
                raise RemoteHostError(f"host {host.name}: {answers[host.name]['error']}")
    answers |= agents.collect([host.name for host in plan.hosts if not host.local], patience(plan))
    return [sentence for name, answer in answers.items() for sentence in sentences(name, answer.get("failed", []))]


def sentences(name: str, failed: list[list[str]]) -> list[str]:
    """Return a sentence for each host that the host `name` could not reach."""
    by_host: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for other, address, port, reason in failed:
        by_host[other, address].append((port, reason))
    return [
        f"host {name} cannot reach {other} at {address}, port {', '.join(str(port) for port, _ in ports)} "
        f"({ports[0][1]}); open the firewall between them, or correct hosts.{other}.address"
        for (other, address), ports in by_host.items()
    ]
