"""The progress of a running simulation."""

from typing import Any

from ..runtime.progress_view import ProgressView
from ..runtime.terminal import clock
from .simulation import Simulation


def show(view: ProgressView, simulation: Simulation, trainer: Any) -> None:
    """Show the progress, if it is time to; called after each worker's round."""
    if view.due:
        accuracy = simulation.accuracies[-1].accuracy if simulation.accuracies else None
        note = "" if accuracy is None else f", accuracy {accuracy:.3f}"
        view.show(share(simulation), f"round {trainer.round}, virtual {clock(simulation.engine.now)}{note}")


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
        shares.append((simulation.engine.now - first.began) / options.max_time)
    return min(1.0, max(shares)) if shares else None
