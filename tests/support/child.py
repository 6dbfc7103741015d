"""Single processes for tests: a piece of Python, run to its end or until it says something."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: What a test's child must not inherit from the shell that the tests are run in.
NOT_INHERITED = ("DMLC_", "ESYNC_", "PS_", "PYTHONUNBUFFERED")

#: Defines rest(): lets a minute pass in Python; in one long sleep a signal could be missed that
#: comes just before it.
REST = """
import time
def rest():
    for _ in range(600):
        time.sleep(0.1)
"""

#: Defines stuck(): waits in C for ever, without Python and without being woken by signals, as MXNet
#: does.
STUCK = """
import ctypes
def stuck():
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
"""


def environment(**changes: str) -> dict[str, str]:
    """The environment of a process that belongs to no cluster but what `changes` say."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    return {**clean, **changes}


def run(
    *command: str, timeout: float = 60, cwd: Path | None = None, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run `python COMMAND…` to its end."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment(**changes),
    )


@contextmanager
def started(*command: str, until: str = "ready", **changes: str) -> Iterator["subprocess.Popen[str]"]:
    """Start `python COMMAND…`, and wait for the line `until` on its standard output.

    The process is killed at the end of the block.
    """
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**changes),
    )
    try:
        while (line := process.stdout.readline()).strip() != until:
            assert line, f"the process has ended without saying {until!r}"
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with suppress(BrokenPipeError):
                pipe.close()


def until(condition: Callable[[], Any], limit: float = 30, problem: str = "that has not come true") -> Any:
    """Wait for a condition, up to `limit` seconds; return its value."""
    end = time.monotonic() + limit
    while not (result := condition()):
        assert time.monotonic() < end, problem
        time.sleep(0.02)
    return result


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(pid: int, seconds: float = 60) -> bool:
    """Whether a process ends within that time; it is killed otherwise."""
    deadline = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True
