"""Query the agents of all remote hosts at once.

A job starts only after the agent of every host has answered: each host is then known to be
reachable, and to have the key, the working directory, Python, this package in the same version, the
data, and free ports. Each failure is reported in a sentence that names the host.
"""

import json
import os
import select
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .. import config
from ..runtime.closing import Closing
from ..runtime.errors import ExpectedError
from ..runtime.watchdog import WatchedWait
from . import process_backend, remote_agent, ssh
from .heartbeat_pipe import HeartbeatPipe
from .hosts import Host
from .ssh_errors import explain_exit

#: Number of lines kept of an agent's other output, enough for ssh's longest warning.
LAST_LINES = 30


class RemoteHostError(ExpectedError):
    """Raised when remote hosts cannot take part; the message has one sentence for each."""


class AgentProcess:
    """The agent of one host.

    Args:
        host: where it runs.
        module: module of this package that implements the agent.

    Attributes:
        host: where it runs.
        last_lines: the end of its output, without the answers.
    """

    def __init__(self, host: Host, module: str) -> None:
        self.host = host
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._popen = process_backend.start(ssh.start_module(host, module), subprocess.PIPE)
        self._line = HeartbeatPipe(self._popen, ssh.first_lines(host, {}))
        assert self._popen.stdout is not None
        self.output = self._popen.stdout
        self._partial_line: list[bytes] = []

    def ask(self, request: Mapping[str, Any]) -> None:
        """Send a request, whose answer `receive` returns."""
        self._line.send(json.dumps(request).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """Read the output that has arrived, and return the answer once it is complete.

        Call it when `output` is readable; otherwise it blocks. Returns None while the answer is
        incomplete.

        Raises:
            RemoteHostError: the agent has ended.
        """
        chunk = os.read(self.output.fileno(), 1 << 20)
        if not chunk:
            self._line.cut()
            raise RemoteHostError(explain_exit(self.host, self._popen.wait(), list(self.last_lines)))
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._partial_line, lines[0]])
            self._partial_line = []
        self._partial_line.append(rest)
        answer = None
        for line in lines:
            text = line.decode(errors="replace").strip()
            parsed = _answer_in(text)
            if parsed is not None:
                answer = parsed
            elif text:
                self.last_lines.append(text)
        return answer

    def close(self) -> None:
        """End the agent, which then releases its ports and folders."""
        self._line.cut()
        if self._popen.poll() is None:
            self._popen.terminate()
        self._popen.wait()
        self.output.close()


class AgentPool(Closing):
    """The agents of all remote hosts, for use in a `with` statement.

    Args:
        hosts: all hosts of a job; those on this machine are ignored.
        notify: tells the user which hosts are waited for.
        module: module of this package that implements the agent, with the protocol of `remote_agent`.

    Raises:
        RemoteHostError: a key file does not exist.
    """

    def __init__(
        self, hosts: Iterable[Host], notify: Callable[[str], None], module: str = remote_agent.__name__
    ) -> None:
        self._notify = notify
        self._agents: dict[str, AgentProcess] = {}
        remote = [host for host in hosts if not host.local]
        problems = list(filter(None, map(ssh.missing_key, remote)))
        if problems:
            raise RemoteHostError("\n".join(problems))
        try:
            for host in remote:
                self._agents[host.name] = AgentProcess(host, module)
        except BaseException:
            self.close()
            raise

    def __contains__(self, name: object) -> bool:
        """Return whether a host of that name has an agent."""
        return name in self._agents

    def ask(self, requests: Mapping[str, Mapping[str, Any]], limit: float) -> dict[str, dict[str, Any]]:
        """Query several hosts at the same time, and return their answers by host name.

        Args:
            requests: the request to each host.
            limit: seconds without any answer after which the others are given up.

        Raises:
            RemoteHostError: hosts have not answered, or have answered with an error.
        """
        self.send(requests)
        return self.collect(list(requests), limit)

    def try_to_ask(
        self, requests: Mapping[str, Mapping[str, Any]], limit: float
    ) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Query hosts like `ask`, and return the problems beside the answers."""
        self.send(requests)
        return self._collect(list(requests), limit)

    def send(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        """Send requests without waiting for the answers, which `collect` returns."""
        for name, request in requests.items():
            self._agents[name].ask(request)

    def collect(self, names: Sequence[str], limit: float) -> dict[str, dict[str, Any]]:
        """Return the answers to earlier requests; see `ask`."""
        answers, problems = self._collect(names, limit)
        if problems:
            raise RemoteHostError("\n".join(problems[name] for name in names if name in problems))
        return answers

    def _collect(self, names: Sequence[str], limit: float) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Wait for the answers; return them and the problems, each by host."""
        answers: dict[str, dict[str, Any]] = {}
        problems: dict[str, str] = {}
        wait, last_answer = WatchedWait("", limit), time.monotonic()
        while waiting := [self._agents[name] for name in names if name not in answers and name not in problems]:
            now = time.monotonic()
            if now - last_answer > limit:
                for silent in waiting:
                    problems[silent.host.name] = _silent(silent, limit)
                break
            wait.what = ", ".join(f"{agent.host.name} ({agent.host.address})" for agent in waiting)
            if wait.due(config.ANNOUNCE_AFTER):
                self._notify(wait.announcement())
            ready, _, _ = select.select([agent.output for agent in waiting], [], [], 0.5)
            for agent in waiting:
                if agent.output not in ready:
                    continue
                last_answer = time.monotonic()
                try:
                    answer = agent.receive()
                except RemoteHostError as error:
                    problems[agent.host.name] = str(error)
                    continue
                if answer and "error" in answer:
                    problems[agent.host.name] = f"host {agent.host.name}: {answer['error']}"
                elif answer is not None:
                    answers[agent.host.name] = answer
        return answers, problems

    def close(self) -> None:
        """End all agents."""
        for agent in self._agents.values():
            agent.close()


def _answer_in(text: str) -> dict[str, Any] | None:
    """Return the answer that a line of output holds, or None if it is something else."""
    _, mark, rest = text.partition(remote_agent.MARK)  # a login shell may have printed something without a newline
    try:
        answer = json.loads(rest) if mark else None
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _silent(agent: AgentProcess, limit: float) -> str:
    last = f"; it said last: {agent.last_lines[-1]}" if agent.last_lines else ""
    return (
        f"host {agent.host.name}: {agent.host.address} has not answered for {limit:.0f} s; check its address, "
        f"the network and the firewall{last}"
    )
