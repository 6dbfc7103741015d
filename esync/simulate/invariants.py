"""What must hold in every schedule, and a model of counters that tells: the weights show what was applied, how often.

The model is a row of counters, one for each worker, which only that worker moves.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from ..algorithms import SSP, Algorithm, ESync, make
from ..exchange.ledger import Limits
from ..launch import flags
from .drawing import Schedule
from .exchange import SimulatedExchange
from .simulation import Simulation
from .timing import TimedIteration, TimedReplica, TimedTrainer
from .world import SimulatedWorld

#: Modes whose workers all hold the same weights after each exchange.
SYNCHRONOUS = ("esync", "sync")
BATCH = 8
EPSILON = 0.02


class BrokenError(AssertionError):
    """A schedule in which something did not hold; the message names the seed."""


class CountingReplica(TimedReplica):
    """One counter for each worker: every iteration of worker r moves counter r by one, once it is applied.

    `sent` collects what this worker has contributed to each exchange.
    """

    def __init__(self, rank: int, workers: int, synchronous: bool, sent: Callable[[float], None]) -> None:
        super().__init__()
        self.weights.values = np.zeros(workers, np.float32)
        self.weights.size = self.size = workers
        self.statistics.values = np.full(2, rank, np.float32)
        self.statistics.size = 2
        self._rank, self._sent = rank, sent
        self._unit = float(workers if synchronous else 1)  # a mean over the workers will divide by their number
        self._steps = 0

    def local_step(self, batch_size: int) -> None:
        """One more of mode esync."""
        self._steps += 1

    def gradient(self, factor: float) -> Any:
        """Mode esync excepted, the exchange moves the counter by one."""
        self._sent(1.0)
        return self._alone(-self._unit)

    def update(self) -> Any:
        """By as many as there were local steps."""
        self._sent(float(self._steps))
        update = self._alone(self._unit * self._steps)
        self._steps = 0
        return update

    def write(self, statistics: bool, start: int, values: np.ndarray) -> None:
        """Take what has come."""
        target = self.statistics if statistics else self.weights
        target.values[start : start + len(values)] = values

    def _alone(self, value: float) -> Any:
        vector = type(self.weights)(self.weights.size)
        vector.values[self._rank] = value
        return vector


class Check:
    """Runs one schedule and looks at what must hold; see `Numerics` for what it is to a simulation.

    * no deadlock, and no worker fails;
    * rounds advance by one;
    * synchronous: all workers hold the same weights after the same round;
    * what was committed is what was applied, once;
    * mode esync, steady devices: nobody waits longer than its bound;
    * mode ssp: nobody goes on who is further ahead of the slowest than the staleness allows.
    """

    evaluates = False
    wire: tuple[int, int] | None = None
    samples = 0

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._weights: dict[int, np.ndarray] = {}  # round → weights, as the first worker held them
        self._rounds: dict[SimulatedWorld, int] = {}
        self._contributed: dict[tuple[int, int], set[float]] = defaultdict(set)  # rank, sequence → amounts
        random = np.random.default_rng(np.random.SeedSequence([schedule.seed, 1]))
        options = flags.parse(["--rounds", str(schedule.rounds), "--batch-size", str(BATCH)])
        self.simulation = Simulation(
            schedule.cluster,
            options,
            self,
            watch=self._watch,
            leases=schedule.leases,
            bucket_elements=schedule.buckets,
            delay=(lambda: float(random.uniform(0, schedule.delay))) if schedule.delay else None,
        )

    def start(self, rank: int, world: SimulatedWorld) -> tuple[TimedTrainer, TimedIteration]:
        """A worker."""
        schedule = self._schedule
        algorithm = _algorithm(schedule)

        def sent(amount: float) -> None:
            exchange = world.connections[-1]
            self._contributed[rank, exchange.sequence + 1].add(amount)

        replica = CountingReplica(rank, len(schedule.cluster.workers), schedule.mode in SYNCHRONOUS, sent)
        limits = Limits(rounds=schedule.rounds)
        return TimedTrainer(algorithm, world, limits, world.simulated.step_time, replica), TimedIteration(BATCH)

    def run(self) -> None:
        """Do it.

        Raises:
            BrokenError: something did not hold.
        """
        try:
            self.simulation.run()
        except Exception as error:
            self._broken(f"{type(error).__name__}: {error}")
        self._check_applied()
        schedule = self._schedule
        if schedule.mode == "esync" and schedule.steady and not (schedule.local_iterations or schedule.run_ahead):
            self._check_waits()

    # --- what must hold -------------------------------------------------------------------------------------------

    def _watch(self, simulation: Simulation, trainer: TimedTrainer) -> None:
        before = self._rounds.get(trainer.world)
        if before is not None and trainer.round != before + 1:
            self._broken(f"worker {trainer.rank} went from round {before} to round {trainer.round}")
        self._rounds[trainer.world] = trainer.round
        if self._schedule.mode == "ssp":
            self._check_staleness(trainer)
        if self._schedule.mode in SYNCHRONOUS:
            weights = trainer.replica.weights.values
            expected = self._weights.setdefault(trainer.round, weights.copy())
            if not np.array_equal(weights, expected):
                self._broken(f"after round {trainer.round} worker {trainer.rank} holds {weights}, others {expected}")

    def _check_staleness(self, trainer: TimedTrainer) -> None:
        """Whoever goes on is not too far ahead, by the books of every server."""
        ledgers = [node.ledger for node in self.simulation.side.nodes]
        if any(ledger.finished for ledger in ledgers):
            return  # then all may go
        for ledger in ledgers:
            for rank in np.flatnonzero(ledger.member).tolist():
                ahead = trainer.round - ledger.commits_of(rank)
                if ahead > self._schedule.staleness:
                    self._broken(f"worker {trainer.rank} is {ahead} exchanges ahead of worker {rank}")

    def _check_applied(self) -> None:
        simulation = self.simulation
        if not simulation.side.here:
            self._broken("nobody has met")
        exchange = next(world.connections[-1] for world in simulation.workers[0].worlds if world.connections)
        assert isinstance(exchange, SimulatedExchange)
        for bucket in exchange.layout.buckets:
            if bucket.statistics:
                continue
            # Asynchronous commits reach the servers in different orders, so at the end of the run one server may have
            # used a payload that another one has not.
            node = simulation.side.nodes[bucket.shard]
            for rank, held in zip(range(bucket.start, bucket.stop), node.weights(bucket), strict=True):
                self._check_counter(
                    rank, float(held), int(node.ledger.acknowledged[rank]), bool(node.ledger.used[rank])
                )

    def _check_counter(self, rank: int, held: float, acknowledged: int, used: bool) -> None:
        """What a server holds of a counter, and how many exchanges of its worker it has dealt with."""
        amounts = [self._contributed[rank, sequence] for sequence in range(1, acknowledged + used)]
        if not all(amounts):
            self._broken(f"worker {rank}: an exchange was used that it never began")
        # It is server 0 that tells the workers of the end: others may leave two exchanges of a worker unused by then.
        surely = amounts if used or self._schedule.mode in SYNCHRONOUS else amounts[:-1]
        least, most = sum(map(min, surely)), sum(map(max, amounts))
        if not least <= held <= most:
            self._broken(f"worker {rank} has contributed {least:g} to {most:g}, but {held:g} was applied")

    def _check_waits(self) -> None:
        """A device waits for its own iteration and epsilon at most, plus what messages take."""
        cluster = self._schedule.cluster
        latency = max(cluster.link(worker.host).latency for worker in cluster.workers)
        slots, bandwidth = len(cluster.workers), cluster.link("server0").bandwidth
        size = 0.0 if self.simulation.side.sizes is None else sum(self.simulation.side.sizes.pushed[0])
        messages = 0.0 if self.simulation.side.sizes is None else sum(self.simulation.side.sizes.buckets[0])
        carrying = slots * size / bandwidth + slots * (messages + 2) * max(s.message_time for s in cluster.servers)
        asking = 4 * (2 * latency + slots * cluster.state_server.answer_time)
        for sums in self.simulation.workers:
            bound = sums.worker.device.step_time + EPSILON + asking + 2 * carrying + 0.05
            if self._schedule.query_mode == "delayed-ack":
                # READY may find the slowest in an iteration that it would better not have begun.
                bound += max(worker.device.step_time for worker in cluster.workers)
            if sums.longest_wait > bound:
                self._broken(f"worker {sums.worker.rank} waited {sums.longest_wait:.3f} s; its bound is {bound:.3f} s")

    def _broken(self, what: str) -> None:
        raise BrokenError(
            f"{what} (python -m esync.simulate.schedules --mode {self._schedule.mode} --seed {self._schedule.seed})"
        )


def _algorithm(schedule: Schedule) -> Algorithm:
    if schedule.mode == "esync":
        return ESync(
            local_iterations=schedule.local_iterations,
            epsilon=EPSILON,
            query_mode=schedule.query_mode,
            run_ahead=schedule.run_ahead,
        )
    if schedule.mode == "ssp":
        return SSP(schedule.staleness)
    return make(schedule.mode)
