"""Views of a running job: a live table on a terminal, lines elsewhere, or nothing."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live

from .. import config
from .status_table import WorkerRow, line, table

#: Seconds between two refreshes of the table.
REFRESH = 0.25


class QuietView:
    """Shows messages, but no progress; the base class of the other views."""

    def show(self, rows: Sequence[WorkerRow]) -> None:
        """Show the workers' state; called several times a second."""

    def print(self, text: str) -> None:
        """Print a message to standard error."""
        print(text, file=sys.stderr, flush=True)

    def process_line(self, name: str, text: str, end: str) -> None:
        """Show a line that a process has printed, and its end; it is in the process's log already."""

    def close(self) -> None:
        """End the view; called when the job is over."""


class LineView(QuietView):
    """Prints a line every few seconds, for output to a file or a pipe."""

    def __init__(self) -> None:
        self._began = self._shown = time.monotonic()
        self._states: list[str] = []

    def show(self, rows: Sequence[WorkerRow]) -> None:
        """Print a line at regular intervals, and when the state of a worker has changed."""
        now = time.monotonic()
        states = [row.state for row in rows]
        if now - self._shown >= config.LAUNCH_LINE_EVERY or (states != self._states and now - self._shown >= 1):
            self._shown, self._states = now, states
            print(line(rows, now - self._began), flush=True)


class FollowView(LineView):
    """Also prints the output of the processes, with their names in front."""

    def process_line(self, name: str, text: str, end: str) -> None:
        """Print the line."""
        print(f"{name} | {text}", end=end, flush=True)


class TableView(QuietView):
    """Shows a table on a terminal, and redraws it."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._began, self._shown = time.monotonic(), 0.0
        self._rows: Sequence[WorkerRow] = ()
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def show(self, rows: Sequence[WorkerRow]) -> None:
        """Redraw the table, at most every REFRESH seconds."""
        self._rows = rows
        if time.monotonic() - self._shown >= REFRESH:
            self._draw()

    def print(self, text: str) -> None:
        """Print the message above the table."""
        self._live.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Draw the table for the last time, and leave it on the screen."""
        self._draw()
        self._live.stop()

    def _draw(self) -> None:
        self._shown = time.monotonic()
        self._live.update(table(self._rows, self._shown - self._began, self._title), refresh=True)


def choose(title: str, quiet: bool, follow: bool = False) -> QuietView:
    """Return the view that the options choose, or the one that suits standard output."""
    console = Console()
    if follow:
        return FollowView()
    if quiet:
        return QuietView()
    if console.is_terminal and not console.is_dumb_terminal:
        return TableView(console, title)
    print(title, flush=True)
    return LineView()
