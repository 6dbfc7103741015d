"""Checks of a description and its hosts, the same as launch's before a job."""

import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from ..data import locate as locate_data
from ..launch.agent_pool import AgentPool, RemoteHostError
from ..launch.description import Description, read
from ..launch.hosts import locate
from ..launch.plan import plan
from ..launch.preflight import check_requests, fixed_ports, patience, resources_of
from ..launch.reachability import try_paths
from ..launch.resources import HostResources, PortInUseError, Ports
from ..launch.services import ports_needed
from ..launch.spec import LaunchPlan
from .finding import Finding, run_checks


def cluster(path: Path, notify: Callable[[str], None]) -> Iterator[Finding]:
    """Check a description, and whether each of its hosts can take part.

    Nothing is started or written on a host. The problems of all hosts are reported; the ports between
    the hosts are tried only if all of them can take part.

    Args:
        path: the description.
        notify: tells the user which hosts are waited for.
    """
    description = read(path)
    hosts = locate(description)
    with Ports() as ports:
        local = HostResources(ports.free(ports_needed(description)))

        def job_on(remote_resources: dict[str, HostResources]) -> LaunchPlan:
            token = secrets.token_hex(8)
            return plan(description, hosts, {}, local, remote_resources, description.program, token=token)

        job = job_on({})
        remote = [host for host in job.hosts if not host.local]
        text = f"{path}: {len(job.workers)} worker(s) on {len(job.hosts)} host(s), {len(remote)} of them over ssh"
        yield Finding("description", "ok", text)
        claims = fixed_ports(description, job)
        for owner, port in claims.pop(None, {}).items():
            try:
                ports.claim(port, owner)
                yield Finding("ports", "ok", f"{owner} {port} is free here")
            except PortInUseError as error:
                yield Finding("ports", "problem", str(error))
        yield from _this_machine(job)
        if remote:
            yield from _far_hosts(job, job_on, claims, description, notify)


def _this_machine(job: LaunchPlan) -> Iterator[Finding]:
    """Check that this machine has the program or the data set of its workers."""
    names = ", ".join(sorted({spec.host.name for spec in job.workers if spec.host.local}))

    def check() -> Finding:
        if job.program is not None:
            job.program.check()
            return Finding(f"host {names}", "ok", "this machine: the program is there")
        locate_data(job.options.dataset, job.options.data_dir)
        return Finding(f"host {names}", "ok", f"this machine: the data set {job.options.dataset} is there")

    return run_checks([(f"host {names}", check)] if names else [])


def _far_hosts(
    job: LaunchPlan,
    job_on: Callable[[dict[str, HostResources]], LaunchPlan],
    claims: dict[str | None, dict[str, int]],
    description: Description,
    notify: Callable[[str], None],
) -> Iterator[Finding]:
    """Check the hosts that are reached over ssh, then the ports between all hosts."""
    if shutil.which("ssh") is None:
        remedy = "install it, for instance with apt-get install openssh-client"
        yield Finding("ssh", "problem", "the program ssh is not installed here", remedy)
        return
    try:
        with AgentPool(job.hosts, notify) as agents:
            requests = check_requests(job, claims, ports_needed(description))
            answers, problems = agents.try_to_ask(requests, patience(job))
            for name in requests:
                if name in problems:
                    yield _problem_of_host(problems[name])
                else:
                    text = f"ssh, Python, esync, ports and data are ready; {answers[name]['cores']} core(s)"
                    yield Finding(f"host {name}", "ok", text)
            if not problems:
                try_paths(job_on(resources_of(answers)), agents)
                yield Finding("network", "ok", "every host reaches the others' ports")
    except RemoteHostError as error:
        yield from map(_problem_of_host, str(error).splitlines())


def _problem_of_host(sentence: str) -> Finding:
    """Convert an error of launch, "host NAME: problem; remedy", to a finding."""
    subject, colon, rest = sentence.partition(": ")
    if not colon or " " in subject.removeprefix("host "):
        subject, rest = "network", sentence
    problem, _, remedy = rest.partition("; ")
    return Finding(subject, "problem", problem, remedy)
