"""Processes that do what a test tells them, one call after another, and that it may kill."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_SECONDS = 60  # for one call
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["esync.exchange.keystores.shared_host_group"])


class ChildError(Exception):
    """A call in the process has raised an error; the message is its type and text."""


class ChildProcess:
    """A process, until the end of a with statement.

    Args:
        make: a function of a module, which is called there and returns the object that all other
            calls get first; it may be None.
        arguments: for `make`.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self._here, child_end = _context.Pipe()
        self._process = _context.Process(target=_serve, args=(child_end, make, arguments))
        self._process.start()
        child_end.close()
        self.end()

    def __enter__(self) -> "ChildProcess":
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.is_alive():
            self.kill()
        self._here.close()
        self._process.close()

    @property
    def number(self) -> int:
        """The process's id."""
        assert self._process.pid is not None
        return self._process.pid

    def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of a module there; return what it returns."""
        self.begin(work, *arguments)
        return self.end()

    def begin(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Call it without waiting."""
        self._here.send((work, arguments))

    def end(self) -> Any:
        """Wait for the call that was begun; return its result."""
        assert self._here.poll(_SECONDS), "the process does not answer"
        fine, result = self._here.recv()
        if not fine:
            raise ChildError(result)
        return result

    def kill(self) -> None:
        """End the process by SIGKILL, and wait until it has ended."""
        os.kill(self.number, signal.SIGKILL)
        self._process.join(_SECONDS)
        assert not self._process.is_alive()


def _serve(commands: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        instance = make(*arguments)
        commands.send((True, None))
        while True:
            work, words = commands.recv()
            try:
                commands.send((True, work(instance, *words)))
            except Exception as error:
                commands.send((False, f"{type(error).__name__}: {error}"))
    except EOFError:  # the test is over
        pass
