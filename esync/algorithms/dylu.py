"""DyLU (Liu et al., arXiv 2401.09135): asynchronous local SGD with dynamic local updates.

Like ESync, it gives each worker local iterations in proportion to its speed, so that all exchange
equally often; but no worker waits. Every update is applied at once by an outer optimizer whose
momentum is applied once per as many updates as there are workers (delayed Nesterov).
"""

from typing import Any

from .. import config
from ..exchange import WEIGHTS, Payload, Specification
from .automatic_interval import AUTO, AutomaticInterval, LocalIterations
from .base import Algorithm
from .context import AlgorithmContext
from .exchange_options import AsynchronousOptions
from .model_averaging import ModelAveraging
from .options import inherited
from .registry import register
from .styles import Style

#: Added before rounding down: half as fast is half as many iterations, whatever the last bits of
#: the measured times are.
ROUNDING = 1e-6


@register("dylu", label="DyLU", style=Style("#999933", (0, (4, 2, 1, 2)), "p"))
class DyLU(Algorithm):
    """⌊H · speed ÷ speed of the fastest⌋ local iterations (1 at least), then an exchange at once.

    The servers send each worker the speed of the fastest; in the first round, before it is known,
    each does one iteration. Each worker keeps its own batch-norm statistics. An update goes through
    `rules.delayed_nesterov`.
    """

    class Options(AsynchronousOptions):
        """The options of local SGD, with the defaults of DiLoCo."""

        local_iterations: LocalIterations = inherited(
            ModelAveraging.Options, "local_iterations", config.DYLU_LOCAL_ITERATIONS
        )
        global_lr: float = inherited(ModelAveraging.Options, "global_lr", config.DILOCO_GLOBAL_LR)
        outer_momentum: float = inherited(ModelAveraging.Options, "outer_momentum", config.DILOCO_OUTER_MOMENTUM)

    options: Options
    sends = "updates"
    synchronous = False

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        self._interval = AutomaticInterval(overlap=False) if self.options.local_iterations == AUTO else None
        self._due = 1  # local iterations of the round under way
        self._done, self._samples, self._seconds = 0, 0, 0.0

    def start(self, context: AlgorithmContext) -> None:
        """Connect to the other workers, and begin with the common model."""
        super().start(context)
        self.replica.keep_anchor()
        scalars = AutomaticInterval.SCALARS if self._interval is not None else {}
        self._begin(self._join(Specification(rule="delayed_nesterov", synchronous=False, scalars=scalars)))

    def step(self, batch_size: int) -> None:
        """Take one local step, and exchange when there have been enough of them."""
        seconds = self._local_step(batch_size)
        self._done += 1
        self._samples += batch_size
        self._seconds += seconds
        self.iterations, self.exchanged = self._done, False
        if self._interval is not None:
            self._interval.add(seconds)
        self.recorder.next_iteration()
        if self.iterations_left > 0:
            return
        with self.recorder.phase(self.exchange_phase):
            replica, pace = self.replica, self._seconds / self._done
            self._contribute()
            replica.open()
            payload = Payload(
                samples=self._samples,
                learning_rate=self.options.global_lr,
                momentum=self.options.outer_momentum,
                pace=pace,
                scalars=self._interval.scalars() if self._interval is not None else {},
                **self._with_statistics({WEIGHTS: replica.update()}),
            )
            result = self._start_exchange(payload, replica).wait()
            replica.close()
        self._count(result)
        if self._interval is not None:
            self._interval.follow(result, iteration_seconds=result.fastest)
        self._due = max(1, int(self._fastest_iterations * result.fastest / pace + ROUNDING))
        self._done, self._samples, self._seconds = 0, 0, 0.0

    @property
    def _fastest_iterations(self) -> int:
        """Local iterations of the fastest worker between two exchanges."""
        setting = self.options.local_iterations
        if self._interval is not None:
            return self._interval.iterations
        return setting if isinstance(setting, int) else 1

    @property
    def iterations_left(self) -> int:
        """Local iterations until the exchange."""
        return self._due - self._done
