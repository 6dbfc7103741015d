"""Start and end a process of a job, on this machine directly and on another one over ssh.

In both cases `process_shim` is started. It runs the command, and ends it with every descendant as
soon as launch is gone.
"""

import json
import math
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

from .. import config
from ..runtime.processes import tied
from . import process_shim, ssh
from .heartbeat_pipe import KILL, TERMINATE, HeartbeatPipe
from .spec import ProcessSpec


class ChildProcess:
    """A process of a job, run by its shim, which is a child of this process.

    Attributes:
        popen: the shim, or the ssh that leads to it; its `stdout` is a pipe with all output.
        arriving: whether the command may still begin: neither has it begun nor has the shim ended.
        arrived: whether the command has begun.
    """

    _all: ClassVar["weakref.WeakSet[ChildProcess]"] = weakref.WeakSet()

    def __init__(self, spec: ProcessSpec) -> None:
        self.arriving, self.arrived = True, False
        self._address = "" if spec.host.here else spec.host.address
        self._all.add(self)
        asked: dict[str, Any] = {"command": spec.command, "environment": dict(spec.environment)}
        asked |= {"lease": config.LAUNCH_LEASE, "grace": config.LAUNCH_GRACE}
        if spec.host.here:
            # A pipe between two processes of one machine cannot lose its connection in silence, and
            # a launcher that is suspended (Ctrl-Z) is still there: silence means nothing.
            asked["lease"] = math.inf
            self.popen = start((sys.executable, "-m", process_shim.__name__), subprocess.PIPE)
            variables = b""
        else:
            self.popen = start(ssh.start_module(spec.host, process_shim.__name__), subprocess.PIPE)
            variables = ssh.first_lines(spec.host, spec.environment)
        self._line = HeartbeatPipe(self.popen, variables + json.dumps(asked).encode() + b"\n")

    def terminate(self) -> None:
        """Ask the process to end."""
        self._line.send(TERMINATE)

    def kill(self) -> None:
        """Kill the process and all its descendants."""
        self._line.send(KILL)

    def exit_code(self, code: int) -> int:
        """Return the command's exit code, negative for a signal, given the shim's exit code."""
        self.arriving = False
        named = {each.value for each in signal.Signals}  # real-time signals have no names, but exit codes
        return 128 - code if code - 128 in named else code

    def reports_start(self, line: str) -> bool:
        """Return whether a line of output reports that the command starts, and note it if so.

        A login shell may have printed something before, without a newline.
        """
        if self.arriving and line.endswith(process_shim.STARTED):
            self.arriving, self.arrived = False, True
            return True
        return False

    @property
    def room(self) -> bool:
        """Whether the next process may be started.

        Of many that log in to a host at once, sshd refuses some.
        """
        if not self._address:
            return True
        return sum(one.arriving and one._address == self._address for one in self._all) < config.SSH_ARRIVING

    def let_go(self) -> None:
        """Kill a shim or an ssh that does not react.

        The kernel, or the shim on the other machine, then ends the command.
        """
        self._line.cut()
        os.killpg(self.popen.pid, signal.SIGKILL)


def start(command: Sequence[str], stdin: int) -> "subprocess.Popen[bytes]":
    """Start a child in a process group of its own.

    Call it in the main thread only, because the kernel ties the child to the thread that starts it.
    """
    return subprocess.Popen(
        tied(command),
        bufsize=0,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
