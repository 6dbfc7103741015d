"""The progress of a long task on standard error: a bar on a terminal, otherwise lines at intervals."""

import sys
import time

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .. import config
from .terminal import STATUS

#: Seconds between two updates of a progress bar.
_BAR_EVERY = 0.2


class ProgressView:
    """Shows on standard error how much of a task is done: a bar on a terminal, otherwise lines at intervals.

    Args:
        title: name of the task.
        quiet: whether to show nothing.
    """

    def __init__(self, title: str, quiet: bool = False) -> None:
        self._title, self._quiet, self._shown = title, quiet, time.monotonic()
        self._bar: Progress | None = None
        if STATUS.is_terminal and not quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
            state = TextColumn("{task.fields[state]}")
            self._bar = Progress(*columns, TimeRemainingColumn(), state, console=STATUS, transient=True)
            self._task = self._bar.add_task(title, total=None, state="")
            self._bar.start()

    @property
    def due(self) -> bool:
        """Whether it is time to show the progress again."""
        every = config.LAUNCH_LINE_EVERY if self._bar is None else _BAR_EVERY
        return not self._quiet and time.monotonic() - self._shown >= every

    def show(self, done: float | None, state: str) -> None:
        """Show the share of the task that is done, from 0 to 1 (None if unknown), and its state."""
        self._shown = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, total=None if done is None else 1.0, completed=done or 0.0, state=state)
        elif not self._quiet:
            share = "" if done is None else f" ({done:.0%})"
            print(f"{self._title}: {state}{share}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
