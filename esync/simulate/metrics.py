"""Metrics of a running simulation: rounds, waits, computing and traffic of every worker, and accuracies."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .world import WorkerModel


@dataclass
class WorkerMetrics:
    """Sums of one worker, in seconds of virtual time.

    Attributes:
        worker: which one.
        began: when its first round began.
        ended: when its newest round ended.
        left: when it had nothing more to do.
        rounds: that it has completed.
        iterations: local iterations in them.
        waits: sum of what it waited for the others' commits.
        longest_wait: the longest of them.
        transfers: what its exchanges took besides.
        worlds: one for each life (a `SimulatedWorld`, or what `roundwise` has of one), with the
            device, the connections and the questions.
    """

    worker: WorkerModel
    began: float = 0.0
    ended: float = 0.0
    left: float = 0.0
    rounds: int = 0
    iterations: int = 0
    waits: float = 0.0
    longest_wait: float = 0.0
    transfers: float = 0.0
    worlds: list[Any] = field(default_factory=list)

    def take(self) -> tuple[int, int]:
        """Return the bytes sent and received since the last call, over all its lives; see `round_callbacks.Traffic`."""
        taken = [world.take() for world in self.worlds]
        return sum(sent for sent, _ in taken), sum(received for _, received in taken)


class SimulationMetrics:
    """Takes the place of the worker program's `round_callbacks.RoundCallbacks`, and passes everything on to one.

    Args:
        sums: of this worker.
        now: virtual clock.
        keeper: writes logs and evaluates; None for neither.
        watch: called after each round with the trainer.
    """

    def __init__(
        self,
        sums: WorkerMetrics,
        now: Callable[[], float],
        keeper: Any = None,
        watch: Callable[[Any], None] | None = None,
    ) -> None:
        self._sums, self._now, self._keeper, self._watch = sums, now, keeper, watch

    def done(self, trainer: Any) -> None:
        """A round is over."""
        sums, result = self._sums, trainer.algorithm.result
        sums.rounds += 1
        sums.iterations += trainer.local_iterations
        sums.ended = self._now()
        if result is not None:
            sums.waits += result.wait
            sums.longest_wait = max(sums.longest_wait, result.wait)
            sums.transfers += result.transfer
        if self._keeper is not None:
            self._keeper.done(trainer)
        else:
            trainer.world.recorder.take()
        if self._watch is not None:
            self._watch(trainer)

    def poll(self, trainer: Any) -> None:
        """Between iterations."""
        if self._keeper is not None:
            self._keeper.poll(trainer)

    def end(self, trainer: Any) -> None:
        """The run is over."""
        if self._keeper is not None:
            self._keeper.end(trainer)
