"""Metrics of a running simulation: each worker's rounds, waits and traffic, and accuracies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .world import SimulatedWorld, WorkerModel


@dataclass
class WorkerMetrics:
    """Totals of one worker; times are seconds of virtual time.

    Attributes:
        worker: the worker's model.
        began: when its first round began.
        ended: when its newest round ended.
        left: when it had finished its work.
        rounds: number of completed rounds.
        iterations: local iterations in these rounds.
        waits: total time of its waits for the others' commits.
        longest_wait: the longest of these waits.
        transfers: total time of its exchanges without these waits.
        settings: those that the state server has chosen, as in run.json (`chosen_settings`).
        worlds: a world for the first worker in the slot and each replacement, with device, connections
            and queries.
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
    settings: Sequence[Mapping[str, Any]] = ()
    worlds: list[SimulatedWorld] = field(default_factory=list)

    def read_delta(self) -> tuple[int, int]:
        """Return the bytes sent and received since the last call, including by earlier workers of the slot.

        See `round_callbacks.Traffic`.
        """
        traffic = [world.read_delta() for world in self.worlds]
        return sum(sent for sent, _ in traffic), sum(received for _, received in traffic)


class SimulationMetrics:
    """Replaces or wraps the worker program's `round_callbacks.RoundCallbacks`.

    Args:
        sums: the totals of this worker.
        now: returns the time of the virtual clock.
        callbacks: callbacks that write logs and evaluate; None for neither.
        watch: called with the trainer after each round.
    """

    def __init__(
        self,
        sums: WorkerMetrics,
        now: Callable[[], float],
        callbacks: Any,
        watch: Callable[[Any], object],
    ) -> None:
        self._sums, self._now, self._callbacks, self._watch = sums, now, callbacks, watch

    def done(self, trainer: Any) -> None:
        """Count a finished round."""
        sums, result = self._sums, trainer.algorithm.result
        sums.rounds += 1
        sums.iterations += trainer.local_iterations
        sums.ended = self._now()
        sums.waits += result.wait
        sums.longest_wait = max(sums.longest_wait, result.wait)
        sums.transfers += result.transfer
        if self._callbacks is not None:
            if self._callbacks.evaluates:
                trainer.replica.add_to_average()
            self._callbacks.done(trainer)
        else:
            trainer.world.recorder.take()
        self._watch(trainer)

    def poll(self, trainer: Any) -> None:
        """Check for results of evaluations; called between iterations."""
        if self._callbacks is not None:
            self._callbacks.poll(trainer)

    def end(self, trainer: Any) -> None:
        """Finish the logs; called when the run is over."""
        if self._callbacks is None:
            return
        result = trainer.algorithm.result
        if self._callbacks.evaluates and not result.used:
            # The final model, which is evaluated, is newer than this worker's last round.
            self._sums.ended = max(self._sums.ended, self._now() - result.since_change)
        self._callbacks.end(trainer)
