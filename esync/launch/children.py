"""How a process of a job is started and ended: on this machine as a child, on another one by ssh."""

import json
import os
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from typing import ClassVar

from .. import config
from ..parenthood import tied
from . import remote_process, ssh
from .lifeline import KILL, TERMINATE, Lifeline
from .spec import ProcessSpec


class Child:
    """A process of this machine, the leader of its process group; it ends when this process ends, however it does.

    Attributes:
        popen: its output is in the pipe `stdout`.
        arriving: whether it is still on its way to where it runs.
    """

    def __init__(self, spec: ProcessSpec) -> None:
        self.arriving = False
        self.popen = start(spec.command, subprocess.DEVNULL, spec.environment)

    def terminate(self) -> None:
        """Ask it to end."""
        os.kill(self.popen.pid, signal.SIGTERM)  # Popen.terminate would reap it, had it just ended, behind Process.poll

    def kill(self) -> None:
        """End it, and its process group."""
        os.killpg(self.popen.pid, signal.SIGKILL)

    def exit_code(self, code: int) -> int:
        """What the command has ended with, negative for a signal, from what its child process has."""
        return code

    def greeted(self, line: str) -> bool:
        """Whether a line of its output says only that it has arrived."""
        return False

    @property
    def room(self) -> bool:
        """Whether the next process may be started."""
        return True

    def let_go(self) -> None:
        """Nobody waits for its end any more."""


class RemoteChild(Child):
    """A process on another machine; the child of this one is its ssh."""

    _all: ClassVar["weakref.WeakSet[RemoteChild]"] = weakref.WeakSet()

    def __init__(self, spec: ProcessSpec) -> None:
        self.arriving = True
        self._address = spec.host.address
        self._all.add(self)
        self.popen = start(ssh.start_module(spec.host, remote_process.__name__), subprocess.PIPE)
        asked = {"command": spec.command, "lease": config.LAUNCH_LEASE, "grace": config.LAUNCH_GRACE}
        first = ssh.first_lines(spec.host, spec.environment) + json.dumps(asked).encode() + b"\n"
        self._line = Lifeline(self.popen, first)

    def terminate(self) -> None:
        """Ask it to end."""
        self._line.send(TERMINATE)

    def kill(self) -> None:
        """End it, and all that it has started."""
        self._line.send(KILL)

    def exit_code(self, code: int) -> int:
        """Undo what shells and `remote_process` do to signals."""
        self.arriving = False
        return 128 - code if 128 < code < ssh.NO_CONNECTION else code

    def greeted(self, line: str) -> bool:
        """Whether a line of its output says only that it has arrived."""
        if self.arriving and line == remote_process.GREETING:
            self.arriving = False
            return True
        return False

    @property
    def room(self) -> bool:
        """Whether the next process may be started: sshd refuses some of too many connections that are not logged in."""
        return sum(one.arriving and one._address == self._address for one in self._all) < config.SSH_ARRIVING

    def let_go(self) -> None:
        """End the ssh that is still there: the other machine did not react, and will find out by itself."""
        self._line.cut()
        super().kill()


def start(
    command: Sequence[str], stdin: int, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a child in a process group of its own; main thread only, because the kernel ties it to its thread."""
    return subprocess.Popen(
        tied(command),
        bufsize=0,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )


def begin(spec: ProcessSpec) -> Child:
    """Start a process where it belongs."""
    return Child(spec) if spec.host.here else RemoteChild(spec)
