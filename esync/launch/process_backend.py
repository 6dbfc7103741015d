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
from .heartbeat_pipe import KILL, PREEMPT, TERMINATE, HeartbeatPipe
from .spec import ProcessSpec


class ChildProcess:
    """A process of a job, run by its shim, which is a child of this process.

    Attributes:
        popen: the shim, or the ssh process that runs it; its `stdout` is a pipe with all output.
        arriving: whether the command has not begun yet, and the shim has not ended.
        arrived: whether the command has begun.
    """

    _all: ClassVar["weakref.WeakSet[ChildProcess]"] = weakref.WeakSet()

    def __init__(self, spec: ProcessSpec) -> None:
        self.arriving, self.arrived = True, False
        self._address = "" if spec.host.local else spec.host.address
        self._all.add(self)
        request: dict[str, Any] = {"command": spec.command, "environment": dict(spec.environment)}
        request |= {"lease": config.LAUNCH_LEASE, "grace": config.LAUNCH_GRACE}
        if spec.host.local:
            # A pipe on one machine does not break without notice, and a suspended launcher (Ctrl-Z)
            # sends no heartbeats: silence is no reason to end the process.
            request["lease"] = math.inf
            self.popen = start((sys.executable, "-m", process_shim.__name__), subprocess.PIPE)
            variables = b""
        else:
            self.popen = start(ssh.start_module(spec.host, process_shim.__name__), subprocess.PIPE)
            variables = ssh.first_lines(spec.host, spec.environment)
        self._line = HeartbeatPipe(self.popen, variables + json.dumps(request).encode() + b"\n")

    def terminate(self) -> None:
        """Ask the process to end."""
        self._line.send(TERMINATE)

    def preempt(self) -> None:
        """Tell the process that its machine will be taken away."""
        self._line.send(PREEMPT)

    def kill(self) -> None:
        """Kill the process and all its descendants."""
        self._line.send(KILL)

    def exit_code(self, code: int) -> int:
        """Close the pipe to the ended shim; return the command's exit code, negative for a signal."""
        self.arriving = False
        self._line.cut()
        # Codes of real-time signals, which have no names, are ordinary exit codes.
        return 128 - code if code - 128 in list(signal.Signals) else code

    def reports_start(self, line: str) -> bool:
        """Return whether a line of output reports that the command starts, and record it.

        A login shell may have printed text before it, without a newline.
        """
        if self.arriving and line.endswith(process_shim.STARTED):
            self.arriving, self.arrived = False, True
            return True
        return False

    @property
    def room(self) -> bool:
        """Whether the next process may be started.

        sshd refuses some of many simultaneous logins.
        """
        if not self._address:
            return True
        return sum(child.arriving and child._address == self._address for child in self._all) < config.SSH_ARRIVING

    def abandon(self) -> None:
        """Kill a shim or an ssh process that does not react.

        The kernel, or the shim on the other machine, then terminates the command.
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
