"""Sequential training on one device, without exchanges: the baseline for accuracy."""

from typing import Any

from ..exchange import ExchangeError, Result
from ..exchange.protocol.resume_negotiation import choose
from ..exchange.protocol.round_state import RoundState
from .base import Algorithm
from .context import AlgorithmContext
from .rate_scaling import RateDecayOptions
from .registry import register
from .styles import Style

#: Number of the job: there is no other worker whose parts could be mixed up with this one's.
JOB = 1


@register("local", label="Standalone", style=Style("#000000", ":", "v"))
class Local(Algorithm):
    """A step of the local optimizer in each iteration; nothing is exchanged.

    Every iteration counts as a round.
    """

    class Options(RateDecayOptions):
        """See `RateDecayOptions`."""

    options: Options
    sends = "nothing"

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        self._round_state = RoundState(1, True)

    def start(self, context: AlgorithmContext) -> None:
        """Begin to count rounds, or go on from a checkpoint."""
        super().start(context)
        self._round_state = RoundState(1, True, context.limits)
        self._round_state.join(0, JOB, self.device.now())
        try:
            resume_at = choose({0: context.checkpoints.offers(0, 1)})
        except ValueError as error:
            raise ExchangeError(str(error)) from None
        state = context.checkpoints.settle(0, JOB, resume_at, replacement=False)
        if state is not None and state.progress is not None:
            self._round_state.resume(state.progress, self.device.now())
            self._report(used=False)
        context.joined()

    def step(self, batch_size: int) -> None:
        """Take one local step."""
        self._local_step(batch_size)
        self._round_state.count(batch_size, self.device.now())
        self.exchanged = bool(self._round_state.used[0])
        self._report(self.exchanged)
        self.iterations = 1

    def stop(self) -> None:
        """End after this iteration."""
        self._round_state.stop()

    def _report(self, used: bool) -> None:
        """Set count and result from how far the run is."""
        state = self._round_state
        self.exchange_count = state.round
        self.result = Result(
            state.round,
            state.version,
            state.samples,
            0.0,
            0.0,
            state.finished,
            used,
            elapsed=state.elapsed,
            exchanged_at=state.exchanged_at,
            needed=state.needed,
            scalars=self.context.scalars(),
        )
