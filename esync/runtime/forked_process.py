"""A fork of this process that serves over two pipes, and ends with this process."""

import contextlib
import faulthandler
import io
import os
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import IO

from . import processes

#: The signal on which the fork prints its stack, and seconds that this takes at most.
_WHERE, _PRINTING = signal.SIGUSR2, 1.0
_STDERR = 2


class ForkedProcess:
    """A fork of this process that serves over two pipes, with the names of `subprocess.Popen`.

    It ends with this process, and its own DataLoader processes end with it. It closes this process's
    connections, so that other processes detect when this one dies. It shares this process's output.

    Args:
        serve: called in the fork with the other ends of `stdin` and `stdout`. The fork ends when it
            returns, with exit code 1 if it raises an exception.
        niceness: number of steps by which its priority is lowered.
    """

    def __init__(self, serve: Callable[[IO[str], IO[str]], None], niceness: int = 0) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()  # otherwise the fork would write the buffer again
        questions, answers = os.pipe(), os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            # Python warns of locks that other threads may hold: of them, ps-lite's and the
            # writers' are not touched in the fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if not self.pid:
            os.close(questions[1])
            os.close(answers[0])
            faulthandler.enable(_STDERR)
            faulthandler.register(_WHERE, _STDERR)
            _serve_in_fork(serve, niceness, parent, questions[0], answers[1])
        os.close(questions[0])
        os.close(answers[1])
        self.stdin: IO[str] | None = os.fdopen(questions[1], "w")
        self.stdout: IO[str] | None = os.fdopen(answers[0])
        self._code: int | None = None

    def print_stack(self) -> None:
        """Let the process print its stack to standard error, as it does when it crashes."""
        if self._code is None:
            os.kill(self.pid, _WHERE)
            time.sleep(_PRINTING)

    def kill(self) -> None:
        """Kill the process."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)  # it exists, at least as a zombie, until `wait`

    def wait(self) -> int:
        """Wait until it has ended; return its exit code, or the negated signal that killed it."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code


def _serve_in_fork(
    serve: Callable[[IO[str], IO[str]], None], niceness: int, parent: int, questions: int, answers: int
) -> None:
    """Serve in the fork; does not return."""
    code = 1
    try:
        os.setsid()  # Ctrl-C in the terminal reaches the parent only, which then ends this process
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        processes.die_with_parent(parent)
        processes.bind_children()
        processes.set_niceness(niceness)
        _drop_connections()
        with open(questions) as lines, io.TextIOWrapper(io.FileIO(answers, "w")) as replies:
            serve(lines, replies)
        code = 0
    except BrokenPipeError:  # the parent is ending
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _drop_connections() -> None:
    """Close the network connections that a fork has inherited."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            inherited = socket.socket(fileno=int(entry))
        except OSError:  # not a socket
            continue
        if inherited.family in (socket.AF_INET, socket.AF_INET6):
            inherited.close()
        else:
            inherited.detach()
