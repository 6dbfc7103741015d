"""The state server in virtual time: the real coordinator behind a modelled network."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from typing_extensions import override

from .. import config
from ..coordination import Coordination, ExchangeDecision, JobSettings
from ..coordination.coordinator import Coordinator, InvalidError
from ..coordination.delayed import DelayedCoordination
from ..coordination.straggler_policies import OnlinePolicy, PolicyDirective
from ..runtime.errors import ExpectedError
from ..runtime.futures import Completed, Handle
from .engine import SimulationEngine, VirtualFuture
from .network import Network

T = TypeVar("T")


@dataclass(frozen=True)
class StateServerModel:
    """Costs of the state server.

    Attributes:
        host: where it runs.
        answer_time: seconds that it needs for one call; it handles one at a time.
    """

    host: str
    answer_time: float = config.SIMULATE_ANSWER_TIME


class StateServerJob:
    """The job of a state server that takes no time, also used by the model checks in the tests.

    Attributes:
        watch: detects stragglers; None if the job does not need it.
    """

    def __init__(self) -> None:
        self.watch: OnlinePolicy | None = None
        self._coordinator: Coordinator | None = None

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator, which exists once the job has begun."""
        if self._coordinator is None:
            raise RuntimeError("no job has been begun on the state server")
        return self._coordinator

    def init(self, settings: JobSettings) -> None:
        """Begin a job; ExpectedError if its settings do not fit."""
        try:
            self._coordinator = Coordinator(
                settings.num_workers, settings.epsilon, settings.slowest_iterations, tiering=settings.tiering
            )
        except InvalidError as error:
            raise ExpectedError(str(error)) from None
        watching = settings.watching
        self.watch = None if watching is None else OnlinePolicy.of(settings.num_workers, watching)

    def decide(
        self,
        rank: int,
        round: int,
        iteration: int,
        capability: float,
        now: float,
        round_trip: float | None,
        leases: bool,
    ) -> ExchangeDecision:
        """Answer a query; without leases, as to a published worker. See `Coordinator`."""
        if leases:
            return self.coordinator.query(rank, round, iteration, capability, now, round_trip)
        return ExchangeDecision(self.coordinator.query(rank, None, iteration, capability, now).ready)


class SimulatedStateServer(StateServerJob):
    """The state server of a modelled cluster.

    Attributes:
        questions: number of queries so far.
    """

    def __init__(self, engine: SimulationEngine, model: StateServerModel) -> None:
        super().__init__()
        self.model = model
        self.questions = 0
        self._engine = engine
        self._free = 0.0

    def handled(self) -> float:
        """Return the time at which the handling of a call that arrives now ends."""
        self._free = max(self._free, self._engine.now) + self.model.answer_time
        return self._free


class SimulatedCoordination(Coordination):
    """Queries of one worker, which waits for every answer.

    Args:
        server: the state server.
        engine: the simulation's engine.
        network: the network between this worker and the server.
        host: where this worker runs.
        rank: this worker's rank.
        leases: whether to use leases; without them the worker sends a query in every iteration, like
            the published implementation.

    Attributes:
        waited: seconds that its calls have taken.
        sent: bytes of the calls.
        received: bytes of the answers.
    """

    def __init__(
        self,
        server: SimulatedStateServer,
        engine: SimulationEngine,
        network: Network,
        host: str,
        rank: int,
        leases: bool = True,
    ) -> None:
        self.round = 1
        self.waited = 0.0
        self.sent = self.received = 0
        self._latency = network.latency(host, server.model.host)
        self._server, self._engine = server, engine
        self._rank, self._leases = rank, leases
        self._round_trip: float | None = None

    @property
    def round_trip(self) -> float:
        """Seconds of the last query; see `Coordination`."""
        return self._round_trip or 0.0

    @override
    def init(self, settings: JobSettings) -> None:
        self._call(lambda now: self._server.init(settings))

    def ask(self, iteration: int, capability: float) -> Handle[ExchangeDecision]:
        """See `Coordination.ask`; the handle is done when it is returned."""
        rank, round, round_trip = self._rank, self.round, self._round_trip

        def answer(now: float) -> ExchangeDecision:
            self._server.questions += 1
            return self._server.decide(rank, round, iteration, capability, now, round_trip, self._leases)

        begun = self._engine.now
        decision = self._call(answer)
        self._round_trip = self._engine.now - begun
        return Completed(decision)

    @override
    def reset(
        self,
        round: int,
        rejoin: bool = False,
        members: Sequence[int] | None = None,
        aside: bool = False,
        exchange: float | None = None,
    ) -> None:
        reset = self._server.coordinator.reset
        self._call(lambda now: reset(self._rank, round, now, 0.0, rejoin, members, aside, exchange))
        self.round = round

    def report_steps(self, since: int, steps: int, seconds: float) -> Handle[PolicyDirective]:
        """See `Coordination.report_steps`; the handle is done when it is returned."""

        def answer(now: float) -> PolicyDirective:
            self._server.questions += 1
            watch = self._server.watch
            if watch is None:
                raise RuntimeError("nobody has asked the state server to look for stragglers")
            return watch.record_steps(self._rank, since, steps, seconds)

        return Completed(self._call(answer))

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _call(self, handle: Callable[[float], T]) -> T:
        """Send a call to the server, have it handled, and wait for the answer."""
        engine, begun = self._engine, self._engine.now
        request, reply = config.SIMULATE_CALL_BYTES
        self.sent, self.received = self.sent + request, self.received + reply
        engine.pass_time(self._latency)
        engine.settle()
        # Calls are handled in order, so that the answer now is the one that will be given when it
        # is this call's turn.
        handled = self._server.handled()
        answer = handle(handled)
        engine.pass_time(handled - engine.now + self._latency)
        self.waited += engine.now - begun
        return answer


class SimulatedDelayedCoordination(DelayedCoordination):
    """Queries of one worker, which does not wait for the answers.

    Args:
        client: makes the calls, one after the other.
        engine: the simulation's engine.
        name: the worker's name in messages.
    """

    def __init__(self, client: SimulatedCoordination, engine: SimulationEngine, name: str) -> None:
        super().__init__(client)
        self._engine = engine
        self._calls: deque[tuple[Callable[[], Any], VirtualFuture[Any]]] = deque()
        self._news = engine.event()
        self._closed = False
        self.task = engine.spawn(f"the questions of {name}", self._work)

    def close(self) -> None:
        """End the task."""
        self._closed = True
        self._wake()

    @override
    def _start(self, call: Callable[[], T]) -> VirtualFuture[T]:
        self._engine.settle()
        answer: VirtualFuture[T] = VirtualFuture(self._engine, "the state server's answer")
        self._calls.append((call, answer))
        self._wake()
        return answer

    def _wake(self) -> None:
        if not self._news.triggered:
            self._news.succeed()

    def _work(self) -> None:
        while not self._closed:
            self._engine.wait(self._news, "something to ask the state server")
            self._news = self._engine.event()
            while self._calls and not self._closed:
                call, answer = self._calls.popleft()
                value = call()
                self._engine.settle()
                answer.complete(value)
