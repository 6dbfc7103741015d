"""Views of a running simulation: its progress and its virtual time."""

import sys
import time
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .. import config
from ..runtime.terminal import clock
from .simulation import Simulation

#: Seconds of real time between two updates of the progress bar on a terminal.
_EVERY = 0.2


class SimulationView(Protocol):
    """Shows the progress of one simulation."""

    def watch(self, simulation: Simulation, trainer: Any) -> None:
        """Update the progress; called after each worker's round."""

    def close(self) -> None:
        """End the view."""


class SilentView:
    """Shows nothing."""

    def watch(self, simulation: Simulation, trainer: Any) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


class _Paced:
    """Shows the progress at intervals.

    Args:
        title: description of the simulation.
        every: seconds of real time between two updates.
    """

    def __init__(self, title: str, every: float) -> None:
        self._title, self._every = title, every
        self._shown = time.monotonic()

    def watch(self, simulation: Simulation, trainer: Any) -> None:
        """Show the progress at most once per interval."""
        now = time.monotonic()
        if now - self._shown >= self._every:
            self._shown = now
            accuracy = simulation.accuracies[-1].accuracy if simulation.accuracies else None
            note = "" if accuracy is None else f", accuracy {accuracy:.3f}"
            self.show(share(simulation), f"round {trainer.round}, virtual {clock(simulation.now)}{note}")

    def show(self, done: float | None, state: str) -> None:
        """Show the share of the run that is done, from 0 to 1 (None if unknown), and its state."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing: nothing is open."""


class PrintedView(_Paced):
    """Prints a line at intervals, for output that is not a terminal."""

    def __init__(self, title: str) -> None:
        super().__init__(title, config.LAUNCH_LINE_EVERY)

    def show(self, done: float | None, state: str) -> None:
        """Print a line."""
        print(f"{self._title}: {state}{'' if done is None else f' ({done:.0%})'}", file=sys.stderr, flush=True)


class ProgressBarView(_Paced):
    """Shows a progress bar on a terminal."""

    def __init__(self, title: str) -> None:
        super().__init__(title, _EVERY)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[state]}"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(title, total=None, state="")
        self._progress.start()

    def show(self, done: float | None, state: str) -> None:
        """Move the progress bar."""
        self._progress.update(self._task, total=None if done is None else 1.0, completed=done or 0.0, state=state)

    def close(self) -> None:
        """Remove the progress bar."""
        self._progress.stop()


def choose(title: str, quiet: bool) -> SimulationView:
    """Return the view that suits the output."""
    if quiet:
        return SilentView()
    return ProgressBarView(title) if sys.stderr.isatty() else PrintedView(title)


def share(simulation: Simulation) -> float | None:
    """Return the share of the run that is done, from 0 to 1, by the nearest limit.

    Returns None if only an accuracy ends the run.
    """
    options, first = simulation.options, simulation.workers[0]
    shares = []
    if options.rounds:
        shares.append(simulation.rounds / options.rounds)
    if options.epochs:
        shares.append(simulation.samples / (options.epochs * simulation.numerics.samples))
    if options.max_time:
        shares.append((simulation.now - first.began) / options.max_time)
    return min(1.0, max(shares)) if shares else None
