"""ESync: local iterations until the state server says that the slowest device is about to be done (paper, Alg. 1)."""

import math
from collections.abc import Sequence

from .. import config
from ..compression import Compression
from ..coordination import Coordination, Decision
from ..exchange import Payload, Result, Service
from ..handles import Handle
from ..measure import CHECK_READY, COMPUTE, GLOBAL_UPDATE, LOCAL_UPDATE
from ..weighting import check
from .base import Algorithm, Surroundings


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
        self.in_checkpoints = not self.compression
        self.global_lr = global_lr
        self.outer_momentum = outer_momentum
        self._weighting = check(weighting)
        self._fixed = local_iterations
        self._address = state_server
        self._epsilon = None if isinstance(epsilon, str) else epsilon
        self._slowest_iterations = slowest_iterations
        self._delayed = query_mode == "delayed-ack"
        self._job = job
        self._coordination: Coordination | None = None
        self._samples = 0
        self._question: Handle[Decision] | None = None
        self._asked_after = 0  # local iterations at the newest question
        self._asked_at = 0.0
        self._free_until = -math.inf  # no question before that: the end of a lease
        self._ready_after = math.inf  # local iterations at the question that the last round's READY answered
        self._unasked, self._unasked_seconds = 0, 0.0  # iterations since the newest question, and what they took
        self._last = 0.0  # seconds of the newest iteration
        self._complete = True

    def start(self, surroundings: Surroundings) -> None:
        """Connect, begin with the common model, and tell the state server what is known of this device's speed."""
        super().start(surroundings)
        self.replica.keep_anchor()
        rule = "outer_nesterov" if self.outer_momentum else "add_mean_update"
        exchange = self._join(Service(rule, synchronous=True, weighting=self._weighting))
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
        unused.
        """
        if self.exchange is not None:
            self.exchange.heartbeat()
        self.abandoned = self._called()
        if not self.abandoned:
            self._iterate(batch_size)
        self.exchanged = self.abandoned or self._due()
        if self.exchanged:
            self.aggregate()

    def _iterate(self, batch_size: int) -> None:
        """End a local iteration."""
        with self.recorder.phase(LOCAL_UPDATE):
            self.replica.local_step(batch_size)
        with self.recorder.phase(COMPUTE):
            seconds = self.device.end_iteration()
        self.iterated(1, batch_size, seconds, seconds)
        self.recorder.next_iteration()

    def undisturbed(self) -> tuple[float, float]:
        """Those of a lease, or of a fixed number all but the last; see `Algorithm.undisturbed`."""
        if self._coordination is None:
            done = 0 if self.exchanged else self.local_iterations
            return (self._fixed or 1) - 1 - done, math.inf
        return (math.inf if self._question is None else 0), self._free_until

    def iterated(self, count: int, batch_size: int, seconds: float, last: float) -> None:
        """See `Algorithm.iterated`."""
        self._unasked += count
        self._unasked_seconds += seconds
        self._last = last
        self._samples += count * batch_size
        self.local_iterations = count if self.exchanged else self.local_iterations + count
        self.exchanged = False

    def _due(self) -> bool:
        """Whether to exchange after this iteration; asks if it is time to."""
        if self._coordination is None:
            return self.local_iterations >= (self._fixed or 1)
        with self.recorder.phase(CHECK_READY):
            if self._called():
                return True
            if self._question is not None or self.device.now() < self._free_until:
                return False
            mean, self._unasked, self._unasked_seconds = self._unasked_seconds / self._unasked, 0, 0.0
            self._asked_after, self._asked_at = self.local_iterations, self.device.now()
            self._question = self._coordination.ask(self.local_iterations, mean)
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
        """Exchange the model updates of all workers, and go on from their mean."""
        if self.exchange is None:
            raise RuntimeError("the algorithm has not been started")
        with self.recorder.phase(GLOBAL_UPDATE):
            replica = self.replica
            replica.open()
            payload = Payload(replica.update(), replica.statistics, self._samples, self.global_lr, self.outer_momentum)
            result = self.exchange.start(payload, replica).wait()
            replica.close()
        self._count(result)
        self._samples = 0
        self._unasked, self._unasked_seconds = 0, 0.0
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
