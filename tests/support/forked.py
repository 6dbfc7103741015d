"""Python programs in processes that have MXNet already: forked from one that has imported it.

An import takes a second or two of processor time, and a cluster has up to seven processes. The
tests of `launch` and of the documented commands start programs as users do.
"""

import multiprocessing
import os
import random
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.support.forkserver_imports", "tests.support.forked"])


class ForkedProgram:
    """A program in a session of its own, with what tests use of `subprocess.Popen`.

    Args:
        arguments: what follows `python`: a file, `-c TEXT` or `-m MODULE`, and the program's own arguments.
        environment: its whole environment.
        log: the file for its output, which is written anew.
        folder: where it runs; None: where the tests run.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path | None = None
    ) -> None:
        log.write_bytes(b"")
        self._process = _CONTEXT.Process(target=_run, args=(list(arguments), dict(environment), log, folder))
        self._process.start()
        self.pid: int = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """The exit code, or a signal's negative number; None while the program runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return `returncode`."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the program's end, and return `returncode`."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(arguments: list[str], environment: dict[str, str], log: Path, folder: Path | None) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if folder is not None:
        os.chdir(folder)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    multiprocessing.set_start_method(None, force=True)  # not that of the process it is forked from
    random.seed()
    numpy.random.seed()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.modules.pop(arguments[1], None)  # otherwise runpy warns
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(arguments[1], {"__name__": "__main__"})
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")
