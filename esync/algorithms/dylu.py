"""Asynchronous local SGD with dynamic local updates and delayed Nesterov (Liu et al., arXiv 2401.09135).

The closest later relative of ESync: local iterations in proportion to a device's speed, so that all exchange equally
often; but nobody waits, and every update is used at once, through an outer optimizer whose momentum is added once for
as many updates as there are workers.
"""

from typing import Any

from .. import config
from ..exchange import Payload, Service
from ..measure import GLOBAL_UPDATE
from .base import Algorithm, Surroundings

#: Half as fast is half as many iterations, whatever the last bits of the measured times are.
ROUNDING = 1e-6


class DyLU(Algorithm):
    """⌊H · speed ÷ speed of the fastest⌋ local iterations (1 at least), then an exchange at once.

    The servers tell each worker how fast the fastest is; until then, in the first round, everybody does one iteration.
    Each worker keeps its own batch-norm statistics.

    Args:
        local_iterations: H, of the fastest worker.
        global_lr: ε, scales an update; see `rules.delayed_nesterov`.
        outer_momentum: of the servers.
        statistics: as in `ASGD`.
    """

    name = "dylu"
    synchronous = False
    own_statistics = True
    exchange_phase = GLOBAL_UPDATE

    def __init__(
        self,
        local_iterations: int = config.DYLU_LOCAL_ITERATIONS,
        global_lr: float = config.DILOCO_GLOBAL_LR,
        outer_momentum: float = config.DILOCO_OUTER_MOMENTUM,
        statistics: str = config.STATISTICS,
    ) -> None:
        super().__init__(statistics)
        if local_iterations < 1:
            raise ValueError(f"local_iterations is {local_iterations}, but should be 1 or more")
        if not 0 <= outer_momentum < 1:
            raise ValueError(f"outer_momentum is {outer_momentum}, but should be 0 or more, and below 1")
        self.global_lr, self.outer_momentum = global_lr, outer_momentum
        self._most = local_iterations
        self._due = 1  # local iterations of the round under way
        self._done, self._samples, self._seconds = 0, 0, 0.0

    @property
    def terms(self) -> dict[str, Any]:
        """The servers' step's; see `Algorithm.terms`."""
        return {"global learning rate": self.global_lr, "outer momentum": self.outer_momentum}

    def start(self, surroundings: Surroundings) -> None:
        """Connect, and begin with the common model."""
        super().start(surroundings)
        self.replica.keep_anchor()
        self._begin(self._join(Service(rule="delayed_nesterov", synchronous=False)))

    def step(self, batch_size: int) -> None:
        """One local step; an exchange when there have been enough of them."""
        if self.exchange is None:
            raise RuntimeError("the algorithm has not been started")
        seconds = self._local_step(batch_size)
        self.iterated(1, batch_size, seconds, seconds)
        self.recorder.next_iteration()
        if self._done < self._due:
            return
        with self.recorder.phase(GLOBAL_UPDATE):
            replica, pace = self.replica, self._seconds / self._done
            replica.open()
            payload = Payload(
                replica.update(),
                samples=self._samples,
                learning_rate=self.global_lr,
                momentum=self.outer_momentum,
                pace=pace,
                **self._statistics(),
            )
            result = self.exchange.start(payload, replica).wait()
            replica.close()
        self._count(result)
        self._due = max(1, int(self._most * result.fastest / pace + ROUNDING))
        self._done, self._samples, self._seconds = 0, 0, 0.0

    def undisturbed(self) -> tuple[float, float]:
        """All but the last; see `Algorithm.undisturbed`."""
        return self._due - 1 - self._done, float("inf")

    def iterated(self, count: int, batch_size: int, seconds: float, last: float) -> None:
        """See `Algorithm.iterated`."""
        self._done += count
        self._samples += count * batch_size
        self._seconds += seconds
        self.local_iterations, self.exchanged = self._done, False
