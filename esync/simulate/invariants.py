"""Invariants of every schedule, checked on a model that is a row of counters.

The counters show which payloads were applied, and how often.

There is one counter for each worker, and only that worker moves it. What must hold follows from
what the algorithm asks the other side to do (`exchange.Specification`), from its payloads, and from
its class.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .. import config
from ..algorithms import Algorithm
from ..arguments import choose_algorithm
from ..exchange import WEIGHTS, ModelSink, Payload, Specification
from ..exchange.codecs.quantization import NONE
from ..exchange.codecs.sparse import Sparse
from ..exchange.host_group import HostGroup
from ..exchange.protocol import wire
from ..exchange.protocol.client import ParameterServerExchange
from ..exchange.protocol.pending import PendingExchange
from ..exchange.protocol.store import Store
from ..exchange.weighting import UNIFORM
from ..training.worker_setup import make_limits
from .schedule_generator import RandomSchedule
from .servers import Sizes
from .simulation import Simulation
from .timing import TimedIteration, TimedReplica, TimedTrainer
from .world import SimulatedWorld

#: Rule → function of the number of workers that returns what each 1 that a worker sends adds to the
#: weights, at learning rate 1 and without momentum. In a round it is divided by the number of
#: workers that take part. One worker alone moves each counter, which therefore does not change
#: between two of its payloads, so that there is no delay to compensate.
ADDED: dict[str, Callable[[int], float]] = {
    "sgd": lambda workers: -1.0,
    "momentum_sgd": lambda workers: -1.0,
    "delay_compensated_sgd": lambda workers: -1.0,
    "add_mean_update": lambda workers: 1.0,
    "outer_nesterov": lambda workers: 1.0,
    "delayed_nesterov": lambda workers: 1.0 / workers,
}
#: Values in one compressed message. With fewer of them there would be no room for their indices.
COMPRESSED = 8
#: Relative error of a sum that rounding may explain.
ROUNDING = 1e-4


class InvariantError(AssertionError):
    """Raised when an invariant did not hold in a schedule; the message names the seed."""


class CountingReplica(TimedReplica):
    """A model of one counter per worker.

    Every iteration of worker r moves counter r by one, once it is applied.
    """

    def __init__(self, rank: int, workers: int) -> None:
        super().__init__()
        self.weights.values = np.zeros(workers, np.float32)
        self.weights.size = self.size = workers
        self.weights.sizes = [workers]
        self.statistics.values = np.full(2, rank, np.float32)
        self.statistics.size = 2
        self._rank = rank
        self._steps = 0

    def local_step(self, batch_size: int) -> float:
        """Count one more step for the next update."""
        self._steps += 1
        return 0.0

    def gradient(self, factor: float) -> Any:
        """Return a gradient that moves the counter by one when a step is taken against it."""
        return self._alone(-1.0)

    def update(self) -> Any:
        """Return an update of as many as there were local steps since the last one."""
        update = self._alone(self._steps)
        self._steps = 0
        return update

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Write values that have been received."""
        target = self.weights if vector == WEIGHTS else self.statistics
        target.values[start : start + len(values)] = values

    def add(self, step: Sparse) -> None:
        """Add sparse values that have been received."""
        indices, values = step
        self.weights.values[indices] += values

    def put(self, step: Sparse) -> None:
        """Write sparse values that have been received."""
        indices, values = step
        self.weights.values[indices] = values

    def _alone(self, value: float) -> Any:
        vector = type(self.weights)(self.weights.size)
        vector.values[self._rank] = value
        return vector


def uncountable(specification: Specification, payload: Payload, rank: int, values: np.ndarray) -> str:
    """Return why the weights do not show which payloads were applied, and how often.

    Returns "" where they do.
    """
    if specification.rule not in ADDED:
        return f"rule {specification.rule}"
    if payload.momentum and specification.rule != "outer_nesterov":  # there, a round is one exchange of each worker
        return f"momentum in rule {specification.rule}"
    if payload.weight_decay:
        return "weight decay"
    if specification.weighting != UNIFORM:
        return f"weighting {specification.weighting}"  # the others' samples count, too
    if specification.compression != NONE:
        return f"compression {specification.compression}"
    if np.delete(values, rank).any():
        return "payloads hold more than a worker's own steps"
    return ""


class InvariantCheck:
    """Runs one schedule and checks what must hold; takes the place of the simulation's `Numerics`.

    * There is no deadlock, and no worker fails.
    * Rounds advance by one; those of a worker that nobody waits for, by one or more.
    * When payloads are used together, and the next ones are, too, all workers hold the same weights
      after the round, but those that nobody waits for.
    * With a rule that adds what is sent, everything that was committed was applied once.
    * With a state server that says when to exchange, and steady devices, nobody waits longer than
      its bound, unless there are workers that nobody waits for, who wait for the end of a round.
    * With a specification that limits the staleness, nobody who goes on is further ahead of the
      slowest.

    Attributes:
        uncounted: why this schedule cannot show that everything committed was applied; "" where it
            can.
    """

    evaluates = False
    data_digest = ""
    wire: Mapping[str, int] | None = None

    def __init__(self, schedule: RandomSchedule) -> None:
        self._schedule = schedule
        self._workers = len(schedule.cluster.workers)
        self._weights: dict[int, np.ndarray] = {}  # round → weights, as the first worker held them
        self._rounds: dict[SimulatedWorld, int] = {}
        self._exchanges: dict[int, WatchedExchange] = {}  # rank → the newest one
        self._made: list[WatchedExchange] = []  # those of workers that have crashed, too
        self._contributed: dict[tuple[int, int], set[float]] = defaultdict(set)  # rank, sequence → amounts
        self._at_once: set[tuple[int, int]] = set()  # rank, sequence of payloads that were not for a round
        self._unawaited: set[tuple[int, int]] = set()  # rank, sequence of payloads that no round waited for
        self._algorithm: Algorithm = choose_algorithm(schedule.options)
        self._momentum = 0.0
        self.uncounted = ""
        self.samples = schedule.options.rounds * self._workers * schedule.options.batch_size
        random = np.random.default_rng(np.random.SeedSequence([schedule.seed, 1]))
        self.simulation = Simulation(
            schedule.cluster,
            schedule.options,
            self,
            watch=self._watch,
            leases=schedule.leases,
            bucket_elements=COMPRESSED if self._algorithm.compression != NONE else schedule.buckets,
            delay=(lambda: float(random.uniform(0, schedule.delay))) if schedule.delay else None,
        )
        self.simulation.side.exchange = self._connect

    def start(self, rank: int, world: SimulatedWorld) -> tuple[TimedTrainer, TimedIteration]:
        """Make the trainer of a worker."""
        options = self._schedule.options
        algorithm, limits = choose_algorithm(options), make_limits(options, self.samples)
        replica = CountingReplica(rank, self._workers)
        trainer = TimedTrainer(algorithm, world, limits, world.simulated.step_time, replica)
        return trainer, TimedIteration(options.batch_size)

    def run(self) -> None:
        """Run the schedule.

        Raises:
            InvariantError: an invariant did not hold.
        """
        try:
            self.simulation.run()
        except Exception as error:
            self._broken(f"{type(error).__name__}: {error}")
        if not self.simulation.side.here:
            self._broken("nobody has met")
        aside = any(exchange.stepped_aside for exchange in self._made)
        if aside:
            self.uncounted = self.uncounted or "workers that nobody waits for"  # rounds are means of different numbers
        self._check_applied()
        if (
            self._asks_when_to_exchange
            and self._schedule.steady
            and not any(exchange.stepped_aside for exchange in self._made)
        ):
            self._check_waits()

    # --- what must hold ---------------------------------------------------------------------------

    @property
    def _asks_when_to_exchange(self) -> bool:
        """Whether all workers ask a state server when to exchange, and then await one another."""
        specification = self._exchange.specification
        asks = self._algorithm.asks_state_server and self.simulation.state_server.watch is None
        return asks and specification.synchronous and not specification.overlap

    @property
    def _exchange(self) -> ParameterServerExchange:
        """Worker 0's exchange."""
        return self._exchanges[0]

    def _connect(self, specification: Specification, store: Store, host_group: HostGroup | None) -> "WatchedExchange":
        """Make a worker's exchange."""
        exchange = WatchedExchange(specification, store, host_group, self._committed)
        self._exchanges[store.rank] = exchange
        self._made.append(exchange)
        return exchange

    def _committed(self, exchange: ParameterServerExchange, payload: Payload) -> None:
        """Note what a payload that a worker sends will add to its counter when it is used."""
        specification, rank = exchange.specification, exchange.rank
        values = np.zeros(self._workers, np.float32)
        if WEIGHTS in payload.vectors:
            payload.vectors[WEIGHTS].read(0, self._workers, values)
        self.uncounted = self.uncounted or uncountable(specification, payload, rank, values)
        self._momentum = payload.momentum
        commit, amount = (rank, exchange.sequence), 0.0
        together = _together(specification, payload)
        if commit in self._contributed and together == (commit in self._at_once):
            # A payload that a crash has interrupted is sent again. If some servers had used it at
            # once, and to the others it comes in a round, the former await another payload of this
            # worker for their next round.
            self.uncounted = self.uncounted or "a switch during a crash"
        if not together:
            self._at_once.add(commit)
        if payload.unawaited:
            self._unawaited.add(commit)
        if not self.uncounted and not payload.discard:
            amount = payload.learning_rate * ADDED[specification.rule](self._workers) * float(values[rank])
            if together:
                round_state = self.simulation.side.nodes[0].round_state
                amount /= self._workers - np.count_nonzero(round_state.excluded)
        self._contributed[commit].add(amount)

    def _watch(self, simulation: Simulation, trainer: TimedTrainer) -> None:
        exchange, result = self._exchanges[trainer.rank], trainer.algorithm.result
        assert result is not None
        ended = exchange.sequence - trainer.algorithm.in_flight  # with overlap, the next one may have begun
        before, unawaited = self._rounds.get(trainer.world), (trainer.rank, ended) in self._unawaited
        if before is not None and (trainer.round <= before if unawaited else trainer.round != before + 1):
            self._broken(f"worker {trainer.rank} went from round {before} to round {trainer.round}")
        self._rounds[trainer.world] = trainer.round
        if exchange.specification.staleness < math.inf:
            self._check_staleness(trainer, exchange.specification.staleness)
        # After the last synchronous round, other workers may have gone on asynchronously.
        if (trainer.rank, exchange.sequence) not in self._at_once and result.synchronous and not unawaited:
            weights = trainer.replica.weights.values
            expected = self._weights.setdefault(result.step, weights.copy())
            if not np.array_equal(weights, expected):
                self._broken(f"after round {trainer.round} worker {trainer.rank} holds {weights}, others {expected}")

    def _check_staleness(self, trainer: TimedTrainer, staleness: float) -> None:
        """Check that no worker that goes on is more than `staleness` exchanges ahead."""
        round_states = [node.round_state for node in self.simulation.side.nodes]
        if any(round_state.finished for round_state in round_states):
            return  # then all may go
        for round_state in round_states:
            for rank in np.flatnonzero(round_state.member).tolist():
                ahead = trainer.round - round_state.commits_of(rank)
                if ahead > staleness:
                    self._broken(f"worker {trainer.rank} is {ahead} exchanges ahead of worker {rank}")

    def _check_applied(self) -> None:
        layout = self._exchange.layout
        for bucket in layout.of(WEIGHTS):
            # Asynchronous commits reach the servers in different orders, so that at the end of the
            # run one server may have used a payload that another one has not.
            node = self.simulation.side.nodes[bucket.shard]
            weights = node.copy(layout.key(bucket), shared=False)[wire.HEADER_ELEMENTS :]
            for rank, held in zip(range(bucket.start, bucket.stop), weights, strict=True):
                self._check_counter(
                    rank, float(held), int(node.round_state.acknowledged[rank]), bool(node.round_state.used[rank])
                )

    def _check_counter(self, rank: int, held: float, acknowledged: int, used: bool) -> None:
        """Check the value that a server holds of a worker's counter.

        `acknowledged` is the number of the worker's exchanges that the server has handled.
        """
        last = acknowledged - (not used)
        amounts = [self._contributed[rank, sequence] for sequence in range(1, last + 1)]
        if not all(amounts):
            self._broken(f"worker {rank}: an exchange was used that it never began")
        if self.uncounted:
            return
        least, most = (_added(map(which, amounts), self._momentum) for which in (min, max))
        room = ROUNDING * max(abs(least), abs(most))
        if not least - room <= held <= most + room:
            self._broken(f"worker {rank} has contributed {least:g} to {most:g}, but {held:g} was applied")

    def _check_waits(self) -> None:
        """Check that no device waits longer than for one iteration, epsilon, and the messages."""
        cluster = self._schedule.cluster
        latency = max(cluster.link(worker.host).latency for worker in cluster.workers)
        epsilon = self.simulation.state_server.coordinator.epsilon
        slots, bandwidth = self._workers, cluster.link("server0").bandwidth
        sizes = Sizes.of(self._exchange.layout, self._workers)
        amounts = [sizes.amount(shard) for shard in range(len(cluster.servers))]
        size = sum(size for size, _ in amounts) + len(cluster.servers) * sizes.message  # a payload with its commits
        messages = sum(messages for _, messages in amounts)
        carrying = slots * size / bandwidth + slots * (messages + 2) * max(s.message_time for s in cluster.servers)
        asking = 4 * (2 * latency + slots * cluster.state_server.answer_time)
        for sums in self.simulation.workers:
            own = sums.worker.device.step_time
            guard = config.EPSILON_SHARE * own if epsilon is None else epsilon
            bound = own + guard + asking + 2 * carrying + 0.05
            if any(world.helpers for world in sums.worlds):  # questions that are not waited for
                # READY may come after the slowest worker has begun one more iteration.
                bound += max(worker.device.step_time for worker in cluster.workers)
            if sums.longest_wait > bound:
                self._broken(f"worker {sums.worker.rank} waited {sums.longest_wait:.3f} s; its bound is {bound:.3f} s")

    def _broken(self, what: str) -> None:
        drawn = "".join(f"{name}={value}, " for name, value in self._schedule.drawn.items())
        raise InvariantError(f"{what} ({drawn}{self._schedule.again})")


class WatchedExchange(ParameterServerExchange):
    """An exchange that reports every payload that it sends.

    Args:
        specification: see `ParameterServerExchange`.
        store: see `ParameterServerExchange`.
        host_group: see `ParameterServerExchange`.
        watch: called with this exchange and each payload.

    Attributes:
        stepped_aside: whether rounds have gone on without this worker.
    """

    def __init__(
        self,
        specification: Specification,
        store: Store,
        host_group: HostGroup | None,
        watch: Callable[[ParameterServerExchange, Payload], None],
    ) -> None:
        super().__init__(specification, store, host_group=host_group)
        self._watch = watch
        self.stepped_aside = False

    def start(self, payload: Payload, model: ModelSink) -> PendingExchange:
        """See `Exchange.start`."""
        handle = super().start(payload, model)
        self._watch(self, payload)
        return handle

    def step_aside(self, resting: bool = False) -> None:
        """See `Exchange.step_aside`."""
        super().step_aside(resting)
        self.stepped_aside = True


def _added(amounts: Iterable[float], momentum: float) -> float:
    """Return the effect of these exchanges of one worker.

    The momentum is that of `rules.outer_nesterov`.
    """
    weight = velocity = 0.0
    for amount in amounts:
        velocity = momentum * velocity + amount
        weight += amount + momentum * velocity
    return weight


def _together(specification: Specification, payload: Payload) -> bool:
    """Return whether a payload is used together with those of all workers, in a round."""
    return specification.synchronous if payload.together is None else payload.together
