"""ESync: local iterations until the state server says that the slowest device is about to be done (paper, Alg. 1)."""

import math
from collections.abc import Sequence
from typing import Any

from .. import config
from ..compression import Compression
from ..coordination import Coordination, Decision
from ..exchange import Payload, Result, Service
from ..handles import Handle
from ..measure import CHECK_READY, GLOBAL_UPDATE
from ..weighting import check
from .base import Algorithm, LandingOfModel, Surroundings


class ESync(Algorithm):
    """Local iterations, then one exchange of model updates: w ← w + ε·mean(Δ).

    Args:
        global_lr: ε, scales the mean update.
        local_iterations: a fixed number of them per round; None asks the state server instead.
        state_server: its address, host:port; None takes ESYNC_STATE_SERVER from the environment.
        epsilon: seconds that guard the state server's decision; "auto" lets it choose them from what it measures.
        slowest_iterations: local iterations of the slowest device per round.
        query_mode: "blocking" waits for every answer of the state server; "delayed-ack" trains on meanwhile, and gives
            the iteration in flight up when READY arrives (paper, section 4.2).
        job: name of the training on the state server.
        outer_momentum: of Nesterov's momentum on the mean update; 0: none.
        weighting: how much each worker counts in the mean, see `weighting`.
        compression: of the exchanges: "none", "fp16", "2bit" or "topk:RATIO", see docs/compression.md.
        run_ahead: local iterations that may be done while an exchange is under way; 0: it is waited for.
    """

    name = "esync"
    exchange_phase = GLOBAL_UPDATE

    def __init__(
        self,
        global_lr: float = config.LEARNING_RATE_GLOBAL,
        local_iterations: int | None = None,
        state_server: str | None = None,
        epsilon: float | str = config.EPSILON,
        slowest_iterations: int = config.SLOWEST_ITERATIONS,
        query_mode: str = config.QUERY_MODE,
        job: str = config.JOB,
        outer_momentum: float = config.OUTER_MOMENTUM,
        weighting: str = config.WEIGHTING,
        compression: str = config.COMPRESSION,
        run_ahead: int = 0,
    ) -> None:
        super().__init__()
        if local_iterations is not None and local_iterations < 1:
            raise ValueError(f"local_iterations is {local_iterations}, but should be 1 or more (or None)")
        if isinstance(epsilon, str) and epsilon != "auto":
            raise ValueError(f"epsilon is {epsilon!r}, but should be a number of seconds or 'auto'")
        if query_mode not in config.QUERY_MODES:
            raise ValueError(f"query_mode is {query_mode!r}, but should be one of {', '.join(config.QUERY_MODES)}")
        if not 0 <= outer_momentum < 1:
            raise ValueError(f"outer_momentum is {outer_momentum}, but should be 0 or more, and below 1")
        self.compression = Compression.parse(compression)
        self.in_checkpoints = not (self.compression or run_ahead)
        self.global_lr = global_lr
        self.outer_momentum = outer_momentum
        self._weighting = check(weighting)
        self._fixed = local_iterations
        self._address = state_server
        self._epsilon = None if isinstance(epsilon, str) else epsilon
        self._slowest_iterations = slowest_iterations
        # At the next exchange the one before has to be over.
        self._run_ahead = run_ahead if local_iterations is None else min(run_ahead, local_iterations)
        self._delayed = query_mode == "delayed-ack" or run_ahead > 0
        self._job = job
        self._coordination: Coordination | None = None
        self._flight: tuple[Handle[Result], LandingOfModel] | None = None
        self._samples, self._iterations = 0, 0  # since the last payload
        self._question: Handle[Decision] | None = None
        self._asked_after = 0  # local iterations at the newest question
        self._asked_at = 0.0
        self._free_until = -math.inf  # no question before that: the end of a lease
        self._ready_after = math.inf  # local iterations at the question that the last round's READY answered
        self._unasked, self._unasked_seconds = 0, 0.0  # iterations since the newest question, and what they took
        self._last = 0.0  # seconds of the newest iteration
        self._complete = True

    @property
    def terms(self) -> dict[str, Any]:
        """The global step's; see `Algorithm.terms`."""
        return {"global learning rate": self.global_lr, "outer momentum": self.outer_momentum}

    def start(self, surroundings: Surroundings) -> None:
        """Connect, begin with the common model, and tell the state server what is known of this device's speed."""
        super().start(surroundings)
        self.replica.keep_anchor()
        if self._run_ahead:
            self.replica.expect_landings()
            self.device.wait_for(self.replica.settle)
        rule = "outer_nesterov" if self.outer_momentum else "add_mean_update"
        exchange = self._join(Service(rule, True, weighting=self._weighting, overlap=self._run_ahead > 0))
        if self._fixed is None:
            world = surroundings.world
            self._coordination = world.coordination(self._address, exchange.rank, self._job, self._delayed)
            if exchange.rank == 0 and not exchange.replacement:
                self._coordination.init(exchange.workers, self._epsilon, self._slowest_iterations)
        self._begin(exchange)
        if self._coordination is not None and self.result is not None and not self.result.finished:
            self._coordination.round = self._round_of_job()
            if exchange.replacement:
                self._coordination.reset(self._round_of_job(), rejoin=True, members=self._members(self.result))
            self._coordination.ask(0, surroundings.capability()).wait()

    def step(self, batch_size: int) -> None:
        """One local step; an exchange when the state server says READY.

        Where its answers are not waited for, READY may have come while the gradients were computed: then they are left
        unused. A worker that runs ahead uses them: nobody waits for it. Its exchange ends in a later step.
        """
        if self.exchange is not None:
            self.exchange.heartbeat()
        self.abandoned = not self._run_ahead and self._called()
        if not self.abandoned:
            self._iterate(batch_size)
        if self._flight is not None:
            self._land(*self._flight)
        if self._flight is None and not self.finished and (self.abandoned or self._due()):
            self.aggregate()

    def _iterate(self, batch_size: int) -> None:
        """End a local iteration."""
        seconds = self._local_step(batch_size)
        self.iterated(1, batch_size, seconds, seconds)
        self.recorder.next_iteration()

    def undisturbed(self) -> tuple[float, float]:
        """Those of a lease, or of a fixed number all but the last; see `Algorithm.undisturbed`."""
        if self._flight is not None:
            return super().undisturbed()  # the answer may come at any time
        if self._coordination is None:
            return (self._fixed or 1) - 1 - self._iterations, math.inf
        return (math.inf if self._question is None else 0), self._free_until

    def iterated(self, count: int, batch_size: int, seconds: float, last: float) -> None:
        """See `Algorithm.iterated`."""
        self._unasked += count
        self._unasked_seconds += seconds
        self._last = last
        self._samples += count * batch_size
        self._iterations += count
        self.local_iterations = count if self.exchanged else self.local_iterations + count
        self.exchanged = False

    def _due(self) -> bool:
        """Whether to exchange after this iteration; asks if it is time to."""
        if self._coordination is None:
            return self._iterations >= (self._fixed or 1)
        with self.recorder.phase(CHECK_READY):
            if self._called():
                return True
            if self._question is not None or self.device.now() < self._free_until:
                return False
            mean, self._unasked, self._unasked_seconds = self._unasked_seconds / self._unasked, 0, 0.0
            self._asked_after, self._asked_at = self._iterations, self.device.now()
            self._question = self._coordination.ask(self._iterations, mean)
            if self._asked_after >= self._ready_after and self._last > self._coordination.round_trip:
                # READY is what the last round got here, and it will be there long before another iteration is over: to
                # begin one would only make the others wait.
                self._question.wait()
            return self._called()

    def _called(self) -> bool:
        """Whether READY has arrived; keeps the lease of a NOT-READY."""
        if self._question is None or not self._question.done():
            return False
        question, self._question = self._question, None
        answer = question.result()
        if answer.ready:
            self._ready_after = self._asked_after
        else:
            self._free_until = self._asked_at + answer.lease
        return answer.ready

    def aggregate(self) -> None:
        """Exchange the model updates of all workers; go on from their mean, or begin to run ahead of it."""
        if self.exchange is None:
            raise RuntimeError("the algorithm has not been started")
        with self.recorder.phase(GLOBAL_UPDATE):
            replica = self.replica
            replica.open()
            payload = Payload(replica.update(), replica.statistics, self._samples, self.global_lr, self.outer_momentum)
            landing = replica.depart() if self._run_ahead else None
            exchange = self.exchange.start(payload, replica if landing is None else landing)
            result = exchange.wait() if landing is None else None
            replica.close()
        self._samples, self._iterations = 0, 0
        self._unasked, self._unasked_seconds = 0, 0.0
        if landing is not None:
            self._flight = exchange, landing
        if result is not None:
            self._begin_round(result)

    def _land(self, exchange: Handle[Result], landing: LandingOfModel) -> None:
        """Take the common model over where it is there, or this worker is as far ahead as it may be."""
        if not exchange.done() and self._iterations < self._run_ahead:
            return
        with self.recorder.phase(GLOBAL_UPDATE):
            self.replica.open()
            landing.iterations = self._iterations
            result = exchange.wait()
            if result.finished:
                landing.discard()
            self.replica.close()
        self._flight = None
        self._begin_round(result)

    def _begin_round(self, result: Result) -> None:
        """An exchange is over. Where this worker has run ahead, some of its next iterations are done already."""
        self._count(result)
        if self._coordination is not None and not result.finished:
            self._coordination.reset(self._round_of_job(), members=self._members(result))

    def close(self) -> None:
        """Leave."""
        super().close()
        if self._coordination is not None:
            self._coordination.close()

    def _members(self, result: Result) -> Sequence[int] | None:
        """Whom the coordinator is to reckon with, where that is not everybody or has not been."""
        complete = self.exchange is None or len(result.members) in (0, self.exchange.workers)
        changed, self._complete = not (complete and self._complete), complete
        return result.members if changed else None

    def _round_of_job(self) -> int:
        """The round that begins, as the state server counts: from 1, also where a run goes on from a checkpoint."""
        before = max(self.exchange.resume_at, 0) if self.exchange is not None else 0
        return self.round - before + 1
