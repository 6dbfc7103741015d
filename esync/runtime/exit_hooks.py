"""Detect how this program ends: by an error, with an exit code, or normally.

Python has no hook for that: atexit is called in any case, `sys.excepthook` only for errors, and an exit
code is known to `sys.exit` only. Therefore all three are replaced; the original hooks are called as
well. In an interactive Python (a prompt, a notebook), a failing statement does not end the program, and
only the end of the process counts.

`raise SystemExit(3)` is not detected, and counts as a normal end.
"""

import atexit
import builtins
import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .errors import ExpectedError
from .watchdog import InterruptedBySignalError


class RunFinished(SystemExit):
    """Ends a loop that continues after the end of the run; `with trainer:` catches it."""


class ExitHooks:
    """Calls a function when the program ends.

    In a forked process, the hooks do nothing.

    Args:
        ended: called with the error that ends the program, including SystemExit, or None for a normal
            end; by the failing thread, which is the main thread or the one that has installed the
            hooks.
    """

    def __init__(self, ended: Callable[[BaseException | None], None]) -> None:
        self._ended = ended
        self._process = os.getpid()
        self._thread = threading.current_thread()
        self._exit: SystemExit | None = None
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    @property
    def forked(self) -> bool:
        """Whether this is a process that was forked from the one that made the hooks."""
        return os.getpid() != self._process

    def install(self) -> None:
        """Install the hooks."""
        self._thread = threading.current_thread()
        self._replace(sys, "excepthook", self._watch_errors)
        self._replace(threading, "excepthook", self._watch_thread)
        self._replace(sys, "exit", self._watch_exit)
        for name in ("exit", "quit"):  # `site` adds them, unless Python runs without it
            if hasattr(builtins, name):
                self._replace(builtins, name, self._watch_exit)
        atexit.register(self._at_exit)

    def go_first(self) -> None:
        """Be called before what has been registered with atexit since, such as the end of a logger's connection."""
        if self._replaced:
            atexit.unregister(self._at_exit)
            atexit.register(self._at_exit)

    def remove(self) -> None:
        """Remove the hooks if they are installed."""
        atexit.unregister(self._at_exit)
        for owner, name, ours, original in self._replaced:
            if getattr(owner, name) is ours:  # otherwise another hook has been installed, which calls ours
                setattr(owner, name, original)
        self._replaced.clear()

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        ours = make(original)
        setattr(owner, name, ours)
        self._replaced.append((owner, name, ours, original))

    @property
    def _watching(self) -> bool:
        return bool(self._replaced) and not self.forked and not interactive()

    def _watch_errors(self, original: Callable[..., Any]) -> Callable[..., None]:
        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            original(kind, error, trace)
            if self._watching:
                self._ended(error)

        return excepthook

    def _watch_thread(self, original: Callable[..., Any]) -> Callable[..., None]:
        def excepthook(failure: threading.ExceptHookArgs) -> None:
            original(failure)
            if failure.thread is self._thread and self._watching:
                self._ended(failure.exc_value)

        return excepthook

    def _watch_exit(self, original: Callable[..., Any]) -> Callable[..., None]:
        def exit(code: Any = None) -> None:
            if threading.current_thread() is threading.main_thread() and self._watching:
                self._exit = SystemExit(code)  # used when the process ends, because it may be caught
            original(code)

        return exit

    def _at_exit(self) -> None:
        if not self.forked:
            self._ended(self._exit)


def interactive() -> bool:
    """Return whether Python is interactive: a prompt or a notebook."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def failure(error: BaseException | None) -> str:
    """Return the reason of a failure in one line; "" for a normal end."""
    if error is None or isinstance(error, GeneratorExit):
        return ""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted (SIGINT)"
    if isinstance(error, InterruptedBySignalError):
        return f"ended by {error}"
    if isinstance(error, SystemExit):
        if error.code is None or error.code == 0:
            return ""
        return f"exit code {int(error.code)}" if isinstance(error.code, int) else _one_line(str(error.code))
    text, name = _one_line(str(error)), type(error).__name__
    if isinstance(error, ExpectedError):
        return text or name
    if text.startswith(f"{name}:"):  # as in MXNet's messages
        return text
    return f"{name}: {text}" if text else name


def _one_line(text: str) -> str:
    """Return the most informative line of a message; MXNet's messages begin with the stack of its C++ code."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]
