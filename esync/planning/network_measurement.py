"""Measure the network between the hosts of the workers and those of the servers.

First each pair of hosts is measured while no other traffic is sent. Then all workers' hosts exchange
bytes with each parameter server's host at the same time, which measures the capacity of its port.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from .. import config
from ..launch.agent_pool import AgentPool
from ..launch.hosts import Host
from .link_probe import LinkFigures
from .measuring_agent import MeasuringAgent


@dataclass(frozen=True)
class HostFigures:
    """A host's link to the network.

    Attributes:
        rate: bytes of payload per second that its port carries in each direction.
        latency: seconds from this host to another one.
    """

    rate: float
    latency: float


@dataclass
class NetworkFigures:
    """The measured links between hosts.

    Attributes:
        links: (worker's host, server's host) → the link between them.
        shared: server's host → bytes per second in each direction, to and from all workers' hosts.
    """

    links: dict[tuple[str, str], LinkFigures] = field(default_factory=dict)
    shared: dict[str, float] = field(default_factory=dict)

    def hosts(self) -> dict[str, HostFigures]:
        """Return the figures of each host.

        The rate of a port is the largest rate measured on it: that of the fastest link or, on a
        server, the sum over all workers that transfer at the same time.
        """
        rates: dict[str, float] = dict(self.shared)
        latencies: dict[str, list[float]] = {}
        for (worker, server), link in self.links.items():
            for host in (worker, server):
                rates[host] = max(rates.get(host, 0.0), link.both)
                latencies.setdefault(host, []).append(link.latency)
        return {name: HostFigures(rates[name], statistics.median(latency)) for name, latency in latencies.items()}


def machine(host: Host) -> str:
    """Return a key that is equal for all hosts on the same machine."""
    return "" if host.local else host.ip or host.address


class NetworkMeasurement:
    """Measures the network.

    Args:
        agents: the agents of the remote hosts.
        local_agent: the agent of this machine.
        notify: called with messages for the user.
    """

    def __init__(self, agents: AgentPool, local_agent: MeasuringAgent, notify: Callable[[str], None]) -> None:
        self._agents, self._local_agent, self._notify = agents, local_agent, notify
        self._ports: dict[str, int | None] = {}
        self._problems: list[str] = []

    def run(
        self, workers: Sequence[Host], servers: Sequence[Host], state_server: Host | None
    ) -> tuple[NetworkFigures, list[str]]:
        """Return the figures of the network, and a sentence for each pair without figures.

        Args:
            workers: the hosts of the workers, without duplicates.
            servers: the hosts of the parameter servers.
            state_server: the host of the state server.
        """
        additional = [state_server] if state_server is not None and state_server not in servers else []
        pairs = [
            (worker, server)
            for server in (*servers, *additional)
            for worker in workers
            if machine(worker) != machine(server)
        ]
        figures = NetworkFigures()
        for number, (worker, server) in enumerate(pairs, 1):
            pair = f"{worker.name} – {server.name} ({number} of {len(pairs)})"
            self._notify(f"network: measuring {pair}")
            answer = self._probe([worker], server, "probe_link").get(worker.name)
            if answer is not None:
                link = figures.links[worker.name, server.name] = LinkFigures(**answer)
                self._notify(
                    f"network: {pair}: {_rate(link.up)} there, {_rate(link.down)} back, "
                    f"{1e3 * link.latency:.2f} ms one way"
                )
        for server in servers:
            together = [worker for worker in workers if (worker.name, server.name) in figures.links]
            if len({machine(worker) for worker in together}) > 1:
                self._notify(f"network: measuring {len(together)} hosts – {server.name} at the same time")
                answers = [self._probe(together, server, "share_link", up=up).values() for up in (True, False)]
                up, down = (sum(answer["rate"] for answer in answer_pair) for answer_pair in answers)
                if up and down:
                    figures.shared[server.name] = LinkFigures(0.0, up, down).both
                    self._notify(f"network: {server.name}: {_rate(up)} from all, {_rate(down)} to all")
        return figures, self._problems

    def _probe(self, workers: Sequence[Host], server: Host, do: str, **more: Any) -> dict[str, dict[str, Any]]:
        """Let hosts measure their links to a server's host at the same time; return the answers."""
        port = self._open(server)
        if port is None:
            return {}
        request = {"do": do, "address": server.ip, "port": port, **more}
        answers, problems = self._request(workers, request)
        self._problems += [f"network to {server.name}: {problem}" for problem in problems]
        return answers

    def _open(self, server: Host) -> int | None:
        """Return the port at which a host answers probes; None if it does not answer."""
        if server.name not in self._ports:
            answers, problems = self._request([server], {"do": "open_link", "address": server.ip})
            self._problems += [f"network to {server.name}: {problem}" for problem in problems]
            self._ports[server.name] = answers[server.name]["port"] if answers else None
        return self._ports[server.name]

    def _request(self, hosts: Sequence[Host], request: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """Send a request to hosts, including this machine, at once; return answers and problems."""
        remote = {host.name: request for host in hosts if not host.local}
        local = [host.name for host in hosts if host.local]
        with ThreadPoolExecutor(max(1, len(local))) as pool:
            futures = {name: pool.submit(self._local_agent.answer, dict(request)) for name in local}
            answers, failed = self._agents.try_to_ask(remote, config.LAUNCH_CHECK)
            problems = list(failed.values())
            for name, future in futures.items():
                answer = future.result()
                if "error" in answer:
                    problems.append(f"host {name}: {answer['error']}")
                else:
                    answers[name] = answer
        return answers, problems


def _rate(rate: float) -> str:
    """Format bytes of payload per second as the bandwidth of a network."""
    bits = bandwidth(rate)
    return f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"


def bandwidth(rate: float) -> float:
    """Return the bandwidth in bits per second that carries `rate` bytes of payload per second."""
    return rate * 8 / config.SIMULATE_GOODPUT if rate < math.inf else math.inf
