"""The base of ESync, local SGD and its relatives: the mean of updates after local iterations."""

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from .. import config
from ..exchange import AS_UPDATES, STATISTICS, WEIGHTS, Payload, Result, Source, Specification, values_of
from ..runtime.errors import AlgorithmResultError
from ..runtime.futures import Handle
from . import assigned_weights, rate_scaling
from .assigned_weights import AssignedWeightsError, PendingAssignment
from .automatic_interval import AUTO, AutomaticInterval, LocalIterations
from .base import Algorithm
from .context import AlgorithmContext, ModelMerge, OptimizerPart
from .exchange_options import CompressionOptions
from .options import option
from .rate_scaling import RateScalingOptions

#: Key of what a worker that has run ahead has learnt, in the result of `ModelAveraging.unsent`.
_AHEAD = "ahead"
#: Key of the effective number of workers in the result of `ModelAveraging.state`.
_WORKERS = "effective workers"


class ModelAveraging(Algorithm):
    """Local iterations on every worker, then w ← w + ε·mean(Δ), perhaps with momentum.

    An exchange is due after a fixed number of local iterations, unless a subclass overrides
    `planned_iterations`.
    """

    class Options(RateScalingOptions, CompressionOptions):
        """The options of the local iterations and of the mean of the updates."""

        local_iterations: LocalIterations | None = option(
            config.LOCAL_ITERATIONS,
            per_device=True,
            help="local iterations per round; esync: instead of asking the state server; dylu: of the fastest worker; "
            "auto: from measured times",
        )
        decay_iterations: Annotated[int, Field(ge=1)] | Literal["none"] = option(
            "none",
            fixed=True,
            agreed_as="decay of the local iterations",
            help="most local iterations in the first round; fewer in later ones, down to 1, so that models whose data "
            "differ drift apart less and less",
        )
        global_lr: float = option(
            config.LEARNING_RATE_GLOBAL,
            gt=0,
            flag=("-gl", "--global-lr"),
            fixed=True,
            agreed_as="global learning rate",
            help="factor ε of a model update",
        )
        outer_momentum: float = option(
            config.OUTER_MOMENTUM,
            ge=0,
            lt=1,
            fixed=True,
            agreed_as="outer momentum",
            help="Nesterov momentum on the model updates; 0: none",
        )
        weighting: Literal["uniform", "samples", "normalized"] = option(
            config.WEIGHTING,
            fixed=True,
            agreed_as="weighting",
            help="how much each worker's update counts in the mean: all the same, by samples, or divided by samples "
            "first (FedNova)",
        )
        statistics_weighting: Literal["as-updates", "uniform", "samples"] = option(
            AS_UPDATES,
            fixed=True,
            agreed_as="weighting of the statistics",
            help="how much each worker's batch-norm statistics count: as its update (uniform if that is normalized), "
            "all the same, or by samples",
        )
        overlap: bool = option(False, per_device=True, help="continue with local iterations during an exchange")
        run_ahead: int = option(
            config.RUN_AHEAD,
            ge=1,
            per_device=True,
            help="with --overlap: largest number of local iterations during one exchange",
        )

        @model_validator(mode="before")
        @classmethod
        def _overlap_by_run_ahead(cls, values: Any) -> Any:
            """Set `overlap` from `run_ahead`, which in Python is enough."""
            if not isinstance(values, dict) or "run_ahead" not in values:
                return values
            if values.get("overlap", True):
                return {**values, "overlap": True}
            raise ValueError("--run-ahead needs --overlap")

    options: Options
    sends = "updates"
    elastic = True
    serverless = True

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        options = self.options
        ahead = options.run_ahead if options.overlap else 0
        # At the next exchange the one before has to be over.
        fixed = options.local_iterations
        self._run_ahead: int = min(ahead, fixed) if isinstance(fixed, int) else ahead
        self._interval = AutomaticInterval(options.overlap) if options.local_iterations == AUTO else None
        self._effective_workers = 1.0  # while nobody knows who does how much
        self._overlapped: tuple[Handle[Result], ModelMerge] | None = None
        self._samples, self._iterations = 0, 0  # since the last payload
        self._assignment = PendingAssignment()
        self._put_off = False  # whether the next exchange is deferred until a checkpoint is written

    @property
    def planned_iterations(self) -> int:
        """Local iterations of the round under way after which an exchange is due, from 1.

        The number stays the same during a round. A subclass may count `round`, or look at `result`,
        the last exchange. Mode esync heeds it only where `local_iterations` is given.
        """
        if self._interval is not None:
            return self._interval.iterations
        iterations = self.options.local_iterations
        return iterations if isinstance(iterations, int) else 1

    @property
    def effective_workers(self) -> float:
        """See `Algorithm.effective_workers`; of the last round, 1 in the first."""
        return self._effective_workers

    def start(self, context: AlgorithmContext) -> None:
        """Connect to the other workers, and begin with the common model."""
        super().start(context)
        self.replica.keep_anchor()
        if self._run_ahead:
            self.replica.enable_overlap()
            self.device.wait_for(self.replica.settle)
        rule = "outer_nesterov" if self.options.outer_momentum else "add_mean_update"
        specification = Specification(
            rule,
            True,
            weighting=self.options.weighting,
            statistics_weighting=self.options.statistics_weighting,
            overlap=self._run_ahead > 0,
            scalars={
                **assigned_weights.SCALARS,
                **(rate_scaling.SCALARS if self._scales_rates else {}),
                **(AutomaticInterval.SCALARS if self._interval is not None else {}),
            },
        )
        self._begin(self._join(specification))
        self._follow(self.result, participated=False)
        self.replica.sample_weights()

    def step(self, batch_size: int) -> None:
        """Take one local step, and exchange if an exchange is due.

        The exchange of a worker that runs ahead ends in a later step. If a checkpoint is due after
        the round that has just ended, the next exchange starts with the next step, because values
        in an exchange would be missing from the checkpoint.
        """
        if self.exchange is not None:
            self.exchange.heartbeat()
        self._note_assignment()
        if self._put_off:
            self._put_off = False
            if self._due():
                self.aggregate()
        self.abandoned = self._abandons_step()
        if not self.abandoned:
            seconds = self._local_step(batch_size)
            self._count_iteration(batch_size, seconds)
            self.recorder.next_iteration()
        if self._overlapped is not None:
            self._merge(*self._overlapped)
            self._put_off = self._overlapped is None and self.context.checkpoints.due(self.round)
        if self._overlapped is None and not self._put_off and not self.finished and (self.abandoned or self._due()):
            self.aggregate()
        self.replica.sample_weights()

    def step_further(self, further: OptimizerPart, batch_size: int) -> None:
        """See `Algorithm.step_further`."""
        self._note_assignment()
        super().step_further(further, batch_size)
        self.replica.sample_weights()

    def _note_assignment(self) -> None:
        """Note weights that the program has assigned since the last step, for the next exchange."""
        assignment = self.replica.assigned_since_sample()
        if assignment is None:
            return
        if not self.replica.reaches(assignment):
            raise AssignedWeightsError(
                f"the program has assigned {assignment}, but what the workers have in common there is not finite, "
                f"so that no update of mode {self.name!r} leads back: begin another run with these weights"
            )
        self._assignment.add(assignment)

    @property
    def in_flight(self) -> bool:
        """Whether an exchange is under way, during which this worker runs ahead."""
        return self._overlapped is not None

    @property
    def iterations_left(self) -> int:
        """Local iterations of this round that are planned and not done yet."""
        return self._planned() - self._iterations

    def _count_iteration(self, batch_size: int, seconds: float) -> None:
        """Count a local iteration that has ended, with its samples and seconds."""
        self._samples += batch_size
        self._iterations += 1
        if self._interval is not None:
            self._interval.add(seconds)
        self.iterations = 1 if self.exchanged else self.iterations + 1
        self.exchanged = False

    def _abandons_step(self) -> bool:
        """Return whether to discard the last iteration's gradients, because the others wait."""
        return False

    def _due(self) -> bool:
        """Return whether to exchange after this iteration."""
        return self.iterations_left <= 0

    def _planned(self) -> int:
        """Return `planned_iterations`, checked, because a subclass may have defined it."""
        planned: Any = self.planned_iterations
        if not isinstance(planned, Integral) or planned < 1:
            raise AlgorithmResultError(
                f"planned_iterations of {type(self).__qualname__} is {planned!r} in round {self.round + 1}, but should "
                "be a whole number of 1 or more"
            )
        return int(min(int(planned), self.max_iterations))

    @property
    def max_iterations(self) -> float:
        """Local iterations of the round under way beyond which none are done; infinite without `decay_iterations`.

        In round n they are (η + 1) ÷ (η + n) of those of the first, with η = config.POLYNOMIAL_DECAY.
        """
        first, eta = self.options.decay_iterations, config.POLYNOMIAL_DECAY
        if not isinstance(first, int):
            return math.inf
        divisor = eta + self.round + 1
        return max(1, (2 * first * (eta + 1) + divisor) // (2 * divisor))  # rounded

    def aggregate(self) -> None:
        """Exchange the model updates of all workers; with overlap, only start the exchange."""
        replica = self.replica
        with self.recorder.phase(self.exchange_phase):
            self._contribute()
            replica.open()
            vectors = {WEIGHTS: replica.update(), STATISTICS: replica.statistics, **self._contributions()}
            payload = self._payload(vectors)
            merge = replica.begin_overlap() if self._run_ahead else None
            exchange = self._start_exchange(payload, replica if merge is None else merge)
            result = exchange.wait() if merge is None else None
            replica.close()
        self._samples, self._iterations = 0, 0
        if merge is not None:
            self._overlapped = exchange, merge
        if result is not None:
            self._begin_round(result)

    def _payload(self, vectors: Mapping[str, Source]) -> Payload:
        """Return what this worker sends in an exchange."""
        options = self.options
        return Payload(vectors, self._samples, options.global_lr, options.outer_momentum, scalars=self._scalars())

    def _merge(self, exchange: Handle[Result], merge: ModelMerge) -> None:
        """Merge the common model if it has arrived; wait for it if this worker is too far ahead."""
        maximum = min(self._run_ahead, self.max_iterations if self._interval is None else self._planned())
        if not exchange.done() and self._iterations < maximum:
            return
        with self.recorder.phase(self.exchange_phase):
            self.replica.open()
            merge.iterations = self._iterations
            result = exchange.wait()
            if result.finished:
                merge.discard()
                self._samples, self._iterations = 0, 0
            self.replica.close()
        self._overlapped = None
        self._begin_round(result)

    def _begin_round(self, result: Result) -> None:
        """Count a finished exchange, and apply weights that all workers have assigned."""
        self._follow(result)
        self._count(result)
        if (assignment := self._assignment.agreed(result.scalars)) is not None:
            options = self.options
            if options.outer_momentum or options.global_lr != 1 or options.weighting == "normalized":
                raise AssignedWeightsError(
                    f"all workers have assigned {assignment}, which an exchange brings to the common model only with "
                    "global_lr 1, without outer_momentum, and with another weighting than normalized: change that, or "
                    "begin another run with these weights"
                )
            if not self._assignment.brought(result.scalars):
                self.replica.assign(assignment)

    @property
    def _scales_rates(self) -> bool:
        return self.options.lr_scaling != "none"

    def _scalars(self) -> dict[str, float]:
        """Return the scalars of the exchange that begins."""
        scalars = self._assignment.scalars()
        if self._interval is not None:
            scalars |= self._interval.scalars()
        if self._scales_rates:
            scalars |= dict.fromkeys(rate_scaling.SCALARS, float(self._samples))
        return scalars

    def _follow(self, result: Result, participated: bool = True) -> None:
        """Process the scalars of an exchange; see `AutomaticInterval.follow`."""
        self._effective_workers = rate_scaling.effective_workers(result.scalars) or self._effective_workers
        if self._interval is not None:
            self._interval.follow(result, participated)

    def unsent(self) -> dict[str, Any]:
        """See `Algorithm.unsent`; it includes local steps ahead of the common model.

        If learning rates are scaled, it also includes the effective number of workers.
        """
        state = {**super().unsent(), **({_WORKERS: self._effective_workers} if self._scales_rates else {})}
        if not (self._iterations and (self._run_ahead or self._behind)):
            return state
        replica = self.replica
        replica.open()
        # The common model of the checkpoint may be newer than that which this worker began with.
        weights = values_of(replica.update() if self._behind else replica.weights)
        model = {"weights": weights, "update": self._behind, "statistics": values_of(replica.statistics)}
        replica.close()
        ahead = {**model, "samples": self._samples, "iterations": self._iterations}
        return {**state, _AHEAD: ahead}

    @property
    def _behind(self) -> bool:
        """Whether rounds may have ended since this worker began its local steps."""
        return False

    @override
    def restore_unsent(self, state: dict[str, Any]) -> None:
        super().restore_unsent(state)
        if self._scales_rates:
            self._effective_workers = float(state.get(_WORKERS, self._effective_workers))
        if _AHEAD not in state:
            return
        ahead, replica = state[_AHEAD], self.replica
        replica.open()
        if self._run_ahead:
            replica.keep_common()
        weights = ahead["weights"] + values_of(replica.weights) if ahead["update"] else ahead["weights"]
        replica.weights.write(0, weights)
        replica.statistics.write(0, ahead["statistics"])
        replica.close()
        self._samples, self._iterations = ahead["samples"], ahead["iterations"]
        self._put_off = True
