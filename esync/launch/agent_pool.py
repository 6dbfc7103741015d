"""Query the agents of all remote hosts at once.

Each failure becomes a sentence that names the host.

Nothing of a job starts before every host has answered: then it is reachable, knows the key, has the
working directory, Python, this package in the same version, the data, and free ports.
"""

import json
import os
import select
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from .. import config
from ..runtime.errors import ExpectedError
from ..runtime.watchdog import WatchedWait
from . import process_backend, remote_agent, ssh
from .heartbeat_pipe import HeartbeatPipe
from .hosts import Host
from .ssh_errors import explain_exit

#: Lines of an agent's other output that are kept: ssh's longest warning fits.
LAST_LINES = 30


class RemoteHostError(ExpectedError):
    """Raised when remote hosts cannot take part; the message has one sentence for each."""


class AgentProcess:
    """The agent of one host.

    Args:
        host: where it runs.
        module: module of this package that is the agent.

    Attributes:
        host: where it runs.
        said: the last lines of its output that are no answers.
    """

    def __init__(self, host: Host, module: str) -> None:
        self.host = host
        self.said: deque[str] = deque(maxlen=LAST_LINES)
        self._popen = process_backend.start(ssh.start_module(host, module), subprocess.PIPE)
        self._line = HeartbeatPipe(self._popen, ssh.first_lines(host, {}))
        assert self._popen.stdout is not None
        self.output = self._popen.stdout
        self._line_so_far: list[bytes] = []

    def ask(self, request: Mapping[str, Any]) -> None:
        """Send a request; the answer is what `receive` finds."""
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
            raise RemoteHostError(explain_exit(self.host, self._popen.wait(), list(self.said)))
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._line_so_far, lines[0]])
            self._line_so_far = []
        self._line_so_far.append(rest)
        answer = None
        for line in lines:
            text = line.decode(errors="replace").strip()
            found = _answer_in(text)
            if found is not None:
                answer = found
            elif text:
                self.said.append(text)
        return answer

    def close(self) -> None:
        """End the agent, which then releases what it holds."""
        self._line.cut()
        if self._popen.poll() is None:
            self._popen.terminate()
        self._popen.wait()
        self.output.close()


class AgentPool:
    """The agents of all remote hosts, for use in a `with` statement.

    Args:
        hosts: all of a job's; those of this machine are left out.
        say: tells the user which hosts are waited for.
        module: module of this package that is the agent: it answers as `remote_agent` does.

    Raises:
        RemoteHostError: a key file does not exist.
    """

    def __init__(self, hosts: Iterable[Host], say: Callable[[str], None], module: str = remote_agent.__name__) -> None:
        self._say = say
        self._agents: dict[str, AgentProcess] = {}
        far = [host for host in hosts if not host.here]
        problems = list(filter(None, map(ssh.missing_key, far)))
        if problems:
            raise RemoteHostError("\n".join(problems))
        try:
            for host in far:
                self._agents[host.name] = AgentProcess(host, module)
        except BaseException:
            self.close()
            raise

    def __contains__(self, name: object) -> bool:
        """Return whether a host of that name has an agent."""
        return name in self._agents

    def ask(self, requests: Mapping[str, Mapping[str, Any]], limit: float) -> dict[str, dict[str, Any]]:
        """Query hosts, by their names, all at the same time; return their answers.

        Args:
            requests: what to ask each of them.
            limit: seconds without a word from one that has not answered.

        Raises:
            RemoteHostError: hosts have not answered, or have answered that something is wrong.
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
        wait, heard = WatchedWait("", limit), time.monotonic()
        while waiting := [self._agents[name] for name in names if name not in answers and name not in problems]:
            now = time.monotonic()
            if now - heard > limit:
                for silent in waiting:
                    problems[silent.host.name] = _silent(silent, limit)
                break
            wait.what = ", ".join(f"{one.host.name} ({one.host.address})" for one in waiting)
            if wait.due(config.ANNOUNCE_AFTER):
                self._say(wait.announcement())
            ready, _, _ = select.select([one.output for one in waiting], [], [], 0.5)
            for one in waiting:
                if one.output not in ready:
                    continue
                heard = time.monotonic()
                try:
                    answer = one.receive()
                except RemoteHostError as error:
                    problems[one.host.name] = str(error)
                    continue
                if answer and "error" in answer:
                    problems[one.host.name] = f"host {one.host.name}: {answer['error']}"
                elif answer is not None:
                    answers[one.host.name] = answer
        return answers, problems

    def close(self) -> None:
        """End all agents."""
        for one in self._agents.values():
            one.close()

    def __enter__(self) -> "AgentPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _answer_in(text: str) -> dict[str, Any] | None:
    """Return the answer that a line of output holds, or None if it is something else."""
    _, mark, rest = text.partition(remote_agent.MARK)  # a login shell may have printed something without a newline
    try:
        answer = json.loads(rest) if mark else None
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _silent(one: AgentProcess, limit: float) -> str:
    last = f"; it said last: {one.said[-1]}" if one.said else ""
    return (
        f"host {one.host.name}: {one.host.address} has not answered for {limit:.0f} s; check its address, the network "
        f"and the firewall{last}"
    )
