"""Exchange by a collective in virtual time, over the modelled network.

Round state, model and rule are the real ones. All ranks share one of each, because their copies
would always be equal. The sum is computed in memory in the order of the chosen schedule, so that it
is bitwise equal to the real one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from typing_extensions import override

from ..exchange import NO_OFFERS, Exchange, JobAbortedError, ModelSink, Payload, Result, Source, Specification
from ..exchange.collectives import LIKE_MPI, SCHEDULES
from ..exchange.collectives.allreduce import ReceiveBuffers, allreduce
from ..exchange.collectives.autotuner import Autotuner
from ..exchange.collectives.memory import MemoryNetwork, run_round_robin
from ..exchange.collectives.replicated_model import CommonModel, result_of
from ..exchange.collectives.transport import bucket_bytes
from ..exchange.protocol import wire
from ..exchange.protocol.layout import Layout
from ..exchange.protocol.resume_negotiation import Offers
from ..exchange.protocol.round_state import Limits, RoundState
from ..exchange.weighting import divisor, factor
from ..runtime.straggler_injection import NETWORK, Straggler
from .allreduce import Allreduce
from .engine import SimulationEngine
from .network import Network
from .servers import modelled


@dataclass(eq=False)
class SharedCollectiveState:
    """State that all workers share.

    Args:
        engine: the simulation's engine.
        network: the network between the hosts.
        hosts: each rank's host.
        name: the collective's name, or auto.
        model: sizes of the modelled vectors if messages carry no values; None if they do.
        byte_time: seconds of a worker per byte of the model, for what a server would do; see `Allreduce`.
    """

    engine: SimulationEngine
    network: Network
    hosts: Sequence[str]
    name: str
    model: Mapping[str, int] | None = None
    byte_time: float = 0.0
    ready: set[int] = field(default_factory=set)
    round_state: RoundState | None = None

    def __post_init__(self) -> None:
        self.slots = len(self.hosts)
        self.everyone_ready = self.engine.event()
        self.waiting: dict[int, PendingSum] = {}
        self.exchanges: dict[int, SimulatedCollective] = {}
        self.choice: Autotuner | None = None
        self._stop = False

    def meet(self, rank: int, specification: Specification, sizes: Mapping[str, int], limits: Limits) -> None:
        """Register a worker; the first one initializes the state."""
        if self.round_state is None:
            self.round_state = RoundState(self.slots, True, limits, added=specification.scalars)
            self.layout = Layout(sizes, 1, bucket_bytes(self.slots, crowded=True) // 4)  # the fewest messages
            self.common = CommonModel(self.layout, specification, self.slots)
            self.weightings = specification.weightings()
            self.carried = modelled(self.model, sizes)
            if self.name == "auto":
                self.choice = Autotuner((*SCHEDULES, "mpi"))
        self.round_state.join(rank, rank + 1, self.engine.now)

    def stop(self) -> None:
        """Request the end of the run.

        As in `control_messages`, it takes effect with the next commits.
        """
        self._stop = True

    def commit(self, pending: "PendingSum", message: Any) -> None:
        """Record a worker's commit; the last one of a round starts the sum."""
        assert self.round_state is not None
        engine, round_state = self.engine, self.round_state
        self.waiting[pending.rank] = pending
        due = round_state.commit(message, engine.now)
        if len(self.waiting) < self.slots and not round_state.finished:
            return
        sums, self.waiting = self.waiting, {}
        if not due:
            for pending_sum in sums.values():
                pending_sum.over(engine.now, used=False)
            return
        if self._stop:
            round_state.stop()
            self._stop = False
        self._add([sums[rank] for rank in sorted(sums)])
        round_state.applied(due, engine.now)
        self._transfer(sums)

    def _add(self, pending: list["PendingSum"]) -> None:
        """Compute the sum at once; each rank sees it only after its own messages have arrived."""
        if self.model is not None or self.round_state is None:
            return
        terms = self.round_state.scalars.terms([pending_sum.message for pending_sum in pending])
        samples = [int(pending_sum.message["samples"]) for pending_sum in pending]
        name, buffers = self._current(), ReceiveBuffers()
        for bucket in self.layout.buckets:
            if bucket.vector not in pending[0].sent:
                continue
            weighting = self.weightings[bucket.vector]
            parts = [self.common.part(pending_sum.values, bucket) for pending_sum in pending]
            for part, count in zip(parts, samples, strict=True):
                if (weight := factor(weighting, count)) != 1:
                    part *= np.float32(weight)
            network = MemoryNetwork(self.slots)
            schedule = SCHEDULES[LIKE_MPI if name == "mpi" else name]
            run_round_robin(
                [allreduce(schedule, part, network.transports[rank], 0, buffers) for rank, part in enumerate(parts)]
            )
            total, turn = divisor(weighting, samples), self.round_state.step
            for _ in self.common.update(bucket, parts[0], total, terms, turn):
                pass

    def _transfer(self, sums: dict[int, "PendingSum"]) -> None:
        """Send the messages of all ranks over the network."""
        engine, begun = self.engine, self.engine.now
        last = max(sums, key=lambda rank: sums[rank].committed)
        layout = Layout(self.carried, 1, self.layout.bucket_elements)
        sent = next(iter(sums.values())).sent
        buckets = [bucket.stop - bucket.start for bucket in layout.buckets if bucket.vector in sent]
        waiting = set(sums)

        def finished(rank: int) -> None:
            waiting.discard(rank)
            exchange = self.exchanges[rank]
            exchange.sent += reduce.sent[rank]
            exchange.received += reduce.received[rank]
            sums[rank].over(engine.time, used=True)
            if not waiting and self.choice is not None:
                self.choice.record(engine.time - begun)

        reduce = Allreduce(engine, self.network, self.hosts, self._current(), buckets, finished, self.byte_time)
        for rank, pending in sums.items():
            notified = begun + self.network.latency(self.hosts[last], self.hosts[rank])  # of the last commit
            pending.waited = notified - pending.committed
            reduce.begin(rank, notified)

    def _current(self) -> str:
        return self.choice.current if self.choice is not None else self.name


class SimulatedCollective(Exchange):
    """One worker's exchange by a collective.

    Args:
        specification: the rules that all ranks run.
        state: the state that they share.
        rank: the worker's rank.
        straggler: delays to inject; see `runtime.straggler_injection`.
    """

    def __init__(
        self, specification: Specification, state: SharedCollectiveState, rank: int, straggler: Straggler
    ) -> None:
        self._specification, self.state, self._straggler = specification, state, straggler
        self.rank, self.workers = rank, state.slots
        self.replacement, self.exchanges = False, 0
        self.job, self.resume_at, self.part = 0, -1, 0
        self.sent = self.received = 0.0
        self.polls = self.sequence = 0
        state.exchanges[rank] = self

    @override
    def join(
        self,
        sizes: Mapping[str, int],
        limits: Limits,
        agreement: dict[str, Any],
        offers: Offers = NO_OFFERS,
    ) -> None:
        self.state.engine.settle()
        self.state.meet(self.rank, self._specification, sizes, limits)

    def begin(self, vectors: Mapping[str, Source], model: ModelSink) -> Result:
        """See `Exchange.begin`; the time that it takes is not modelled."""
        state = self.state
        if self.rank == 0:
            state.common.fill(state.common.values, vectors)
        state.ready.add(self.rank)
        if len(state.ready) == state.slots:
            state.everyone_ready.succeed()
        state.engine.wait(state.everyone_ready, "all workers to come")
        if state.model is None:
            state.common.write(model, vectors)
        return self.report(0.0, 0.0, True)

    @override
    def start(self, payload: Payload, model: ModelSink) -> "PendingSum":
        state = self.state
        self.sequence += 1
        values = np.empty(0 if state.model is not None else state.common.values.size, np.float32)
        if values.size:
            state.common.fill(values, payload.vectors)
        pending = PendingSum(self, model, payload, values, state.engine.now)
        state.engine.pass_time(self._straggler.delay(NETWORK, state.engine.now))
        state.engine.settle()
        pending.commit(
            wire.message(
                wire.COMMIT, self._specification.scalars, rank=self.rank, sequence=self.sequence, **payload.fields
            )
        )
        return pending

    def heartbeat(self) -> None:
        """Do nothing: no other process needs to know that this worker is alive."""

    @override
    def stop(self) -> None:
        self.state.engine.settle()
        self.state.stop()

    @override
    def abort(self, reason: str) -> None:
        state = self.state
        state.engine.settle()
        assert state.round_state is not None
        state.round_state.abort(reason)
        waiting, state.waiting = state.waiting, {}
        for pending in waiting.values():
            pending.over(state.engine.now, used=False)

    def close(self) -> None:
        """Do nothing: the other ranks need no message."""

    def report(self, wait: float, transfer: float, used: bool) -> Result:
        """Return the state of the run as a result."""
        assert self.state.round_state is not None
        return result_of(self.state.round_state, wait, transfer, used)


class PendingSum:
    """The handle of an exchange by a collective."""

    def __init__(
        self, exchange: SimulatedCollective, model: ModelSink, payload: Payload, values: np.ndarray, begun: float
    ) -> None:
        self.rank, self.values = exchange.rank, values
        self.sent, self._returned = set(payload.vectors), payload.returned
        self.committed = self.waited = 0.0
        self.message: Any = None
        self._exchange, self._model, self._begun = exchange, model, begun
        self._result: Result | None = None
        self._over: float | None = None
        self._used = False
        self._wake: Callable[[Any], None] | None = None

    def commit(self, message: Any) -> None:
        """Commit the payload, which is ready."""
        state = self._exchange.state
        self.message, self.committed = message, state.engine.now
        state.commit(self, message)

    def over(self, time: float, used: bool) -> None:
        """Record that this rank has the sum at `time`.

        Called from an event, or by another rank's commit.
        """
        self._over, self._used = time, used
        if self._wake is not None:
            state = self._exchange.state
            state.engine.call_at(max(time, state.engine.time), self._wake, None)

    def done(self) -> bool:
        """Return whether this rank has the sum."""
        engine = self._exchange.state.engine
        engine.settle()
        return self._over is not None and engine.now >= self._over

    def wait(self) -> Result:
        """Wait for the other workers and for the messages, write the model, and return the result."""
        if self._result is None:
            exchange, state = self._exchange, self._exchange.state
            if not self.done():
                self._wake = state.engine.waker(f"the commits of the others (worker {self.rank})")
                state.engine.pause()
            assert state.round_state is not None
            if state.round_state.failure:
                raise JobAbortedError(state.round_state.failure)
            if state.model is None:
                state.common.write(self._model, self._returned)
            transfer = max(0.0, state.engine.now - self._begun - self.waited)
            self._result = exchange.report(self.waited, transfer, self._used)
        return self._result
