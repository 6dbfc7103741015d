"""A world for one worker, through the real interfaces.

Other workers, state server and clock are scripted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from esync.algorithms import Algorithm, AlgorithmContext, Hyper
from esync.coordination import ExchangeDecision, JobSettings
from esync.exchange import NO_OFFERS, STATISTICS, WEIGHTS, Exchange, Payload, Result, Specification
from esync.exchange.codecs.sparse import Sparse
from esync.exchange.protocol.resume_negotiation import Offers
from esync.exchange.protocol.round_state import Limits
from esync.runtime.batch_sizes import StepTime
from esync.runtime.futures import Completed
from esync.runtime.phase_timer import PhaseTimer


class Array:
    """A flat vector as the exchange reads it."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = np.float32(values)

    @property
    def size(self) -> int:
        return self.values.size

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        out[:] = self.values[start:stop]

    def write(self, start: int, values: np.ndarray) -> None:
        self.values[start : start + len(values)] = values


def all_of(source: Any, count: int) -> list[float]:
    """All values of an exchange.Source."""
    out = np.full(count, np.nan, np.float32)
    source.read(0, count, out)
    return out.tolist()


class Replica:
    """A model of two weights and one statistic.

    A local step adds the "gradient" (here: what is to be added) to the weights.
    """

    def __init__(self) -> None:
        self.weights, self.statistics = Array([0, 0]), Array([5])
        self.gradients = [0.0, 0.0]
        self.further: dict[str, Array] = {}
        self.contributions: dict[str, Array] = {}
        self.anchor: np.ndarray | None = None
        self.own_statistics: list[bool] = []
        self.is_open = False
        self.steps: list[int] = []

    def open(self) -> None:
        assert not self.is_open
        self.is_open = True

    def close(self) -> None:
        assert self.is_open
        self.is_open = False

    def add_vectors(self, names: Iterable[str]) -> None:
        assert not set(names)

    def keep_anchor(self) -> None:
        self.anchor = self.weights.values.copy()

    def sample_weights(self) -> None:
        pass

    def assigned_since_sample(self) -> None:
        return None

    def assigned_since_exchange(self, vectors: Iterable[str]) -> None:
        return self.assigned_since_sample()

    def keep_statistics(self, separate: bool) -> None:
        assert self.is_open
        self.own_statistics.append(separate)

    @property
    def vectors(self) -> dict[str, Array]:
        return {WEIGHTS: self.weights}

    def gradient(self, factor: float, vector: str = "") -> Array:
        assert self.is_open
        return Array(np.float32(self.gradients) * factor)

    def update(self) -> Array:
        assert self.is_open
        assert self.anchor is not None
        return Array(self.weights.values - self.anchor)

    def local_step(self, batch_size: int) -> float:
        assert not self.is_open
        self.steps.append(batch_size)
        self.weights.values = self.weights.values + np.float32(self.gradients)
        return 1.0

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        assert self.is_open
        held = {WEIGHTS: self.weights, STATISTICS: self.statistics, **self.further}[vector]
        held.values[start : start + len(values)] = values
        if vector == WEIGHTS and self.anchor is not None:
            self.anchor[start : start + len(values)] = values


def _dense(step: Sparse, count: int) -> list[float]:
    """All values of a sparse vector."""
    out = np.zeros(count, np.float32)
    indices, values = step
    out[indices] = values
    return out.tolist()


@dataclass
class Sent:
    """What was in a payload."""

    values: list[float]
    statistics: list[float] | None
    samples: int
    learning_rate: float
    momentum: float
    weight_decay: float
    pace: float = 0.0


class ScriptedExchange(Exchange):
    """Answers each exchange with the next of `answers`.

    An answer is (new weights, whether it ends the run, whether the exchange counted).

    `log` has every call, `sent` every payload; `beginning` is the common model.
    """

    def __init__(self, specification: Specification, rank: int, answers: list[tuple[list[float], bool, bool]]) -> None:
        self.specification, self.rank, self.workers = specification, rank, 3
        self.replacement, self.exchanges = False, 0
        self.job, self.resume_at, self.part = 7, -1, 0
        self.answers = answers
        self.log: list[Any] = []
        self.sent: list[Sent] = []
        self.returned: list[frozenset[str]] = []
        self.rounds = 0
        self.fastest = 0.0
        self.members: tuple[int, ...] = ()
        self.beginning: Sequence[float] = (1.0, 2.0)

    def join(
        self, sizes: Mapping[str, int], limits: Limits, agreement: dict[str, Any], offers: Offers = NO_OFFERS
    ) -> None:
        self.sizes, self.offers = sizes, offers
        self.log.append(("join", sizes, limits, agreement))

    def begin(self, vectors: Mapping[str, Any], model: Any) -> Result:
        self.log.append(("begin", *(all_of(source, self.sizes[name]) for name, source in vectors.items())))
        model.write(WEIGHTS, 0, np.float32(self.beginning))
        self.rounds = self.exchanges
        return Result(self.exchanges, 0, 0, 0.0, 0.0, finished=False)

    def start(self, payload: Payload, model: Any) -> Completed[Result]:
        sent = {name: all_of(source, self.sizes[name]) for name, source in payload.vectors.items()}
        self.sent.append(
            Sent(
                sent[WEIGHTS] if payload.step is None else _dense(payload.step, self.sizes[WEIGHTS]),
                sent.get(STATISTICS),
                payload.samples,
                payload.learning_rate,
                payload.momentum,
                payload.weight_decay,
                payload.pace,
            )
        )
        self.returned.append(payload.returned)
        self.log.append("exchange")
        weights, finished, used = self.answers.pop(0)
        model.write(WEIGHTS, 0, np.float32(weights))
        self.rounds += used
        standing = {"members": self.members, "needed": (0, 1, 2), "fastest": self.fastest}
        return Completed(Result(self.rounds, 0, 0, 0.5, 0.1, finished, used, **standing))

    def assign(self, weights: np.ndarray, vector: str = WEIGHTS) -> None:
        self.log.append(("assign", weights.tolist()))

    def stop(self) -> None:
        self.log.append("stop")

    def abort(self, reason: str) -> None:
        self.log.append(("abort", reason))

    def close(self) -> None:
        self.log.append("close")


class Slow:
    """The handle of an answer that needs time."""

    def __init__(self, device: "Device", at: float, decision: ExchangeDecision) -> None:
        self.device, self.at, self.decision = device, at, decision

    def done(self) -> bool:
        return self.device.time >= self.at

    def wait(self) -> ExchangeDecision:
        self.device.time = max(self.device.time, self.at)
        return self.decision


class ScriptedCoordination:
    """Answers as the script says (READY or not, or a lease in seconds), `round_trip` seconds later.

    Writes down every call, in the log of the exchange too.
    """

    def __init__(self, script: list[bool | float], log: list[Any], device: "Device", round_trip: float) -> None:
        self.round, self.round_trip = 1, round_trip
        self.script, self.log, self.device = script, log, device

    def init(self, settings: JobSettings) -> None:
        self.log.append(("init", settings.num_workers, settings.epsilon, settings.slowest_iterations))

    def ask(self, iteration: int, capability: float) -> Slow:
        self.log.append(("ask", self.round, iteration, capability))
        entry = iteration > 0 and self.script.pop(0)
        decision = ExchangeDecision(entry) if isinstance(entry, bool) else ExchangeDecision(False, entry)
        return Slow(self.device, self.device.time + self.round_trip, decision)

    def reset(self, round: int, rejoin: bool = False, members: Sequence[int] | None = None) -> None:
        self.log.append(("reset", round) if not rejoin and members is None else ("reset", round, rejoin, members))
        self.round = round

    def close(self) -> None:
        self.log.append("no more questions")


class Device:
    """Every iteration takes 2 seconds (`seconds`) of a clock that moves only then."""

    def __init__(self) -> None:
        self.time, self.seconds = 0.0, 2.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def begin_run(self, elapsed: float) -> None:
        pass

    def begin_iteration(self) -> None:
        pass

    def wait_for(self, work: Callable[[], None]) -> None:
        pass

    def end_iteration(self) -> float:
        self.time += self.seconds
        return self.seconds


def steady_world(weights: Sequence[float], answers: int = 9, replaces: int = 0, **script: Any) -> "World":
    """A world whose common model has the same weights at the beginning and after each of so many exchanges.

    `replaces` are the exchanges of a dead worker whose slot this one has; 0: nobody has died.
    """
    return World(answers=[(list(weights), False, True)] * answers, beginning=weights, replaces=replaces or -1, **script)


def begun(algorithm: Any, **script: Any) -> tuple["World", Any]:
    """A world of this script whose worker has started, and its algorithm."""
    world = World(**script)
    world.start(algorithm)
    return world, algorithm


@dataclass
class World:
    """Hands out the scripted parts."""

    rank: int = 0
    answers: list[tuple[list[float], bool, bool]] = field(default_factory=list)
    ready: list[bool | float] = field(default_factory=list)
    round_trip: float = 0.0
    prepare: Callable[[ScriptedExchange], None] = lambda exchange: None
    capability: float = 0.25
    limits: Limits = field(default_factory=Limits)
    step_times: Sequence[StepTime] = ()
    beginning: Sequence[float] = (1.0, 2.0)
    replaces: int = -1  # exchanges of a dead worker whose slot this one has; -1: nobody has died

    def __post_init__(self) -> None:
        self.device = Device()
        self.recorder = PhaseTimer(self.device.now)
        self.replica = Replica()
        self.addresses: list[tuple[str | None, int, str, bool]] = []
        self.hyper = [Hyper(0.1, 0.9, 0.01, 1.0)]

    def exchange(self, specification: Specification) -> ScriptedExchange:
        self.made = made = ScriptedExchange(specification, self.rank, self.answers)
        made.beginning, made.exchanges, made.replacement = self.beginning, max(self.replaces, 0), self.replaces >= 0
        self.prepare(made)
        return made

    def coordination(self, address: str | None, rank: int, job: str, delayed: bool) -> ScriptedCoordination:
        self.addresses.append((address, rank, job, delayed))
        self.state_server = ScriptedCoordination(self.ready, self.made.log, self.device, self.round_trip)
        return self.state_server

    def start(self, algorithm: Algorithm) -> None:
        algorithm.start(
            AlgorithmContext(
                replica=self.replica,
                world=self,
                hyper=lambda: self.hyper.pop(0) if len(self.hyper) > 1 else self.hyper[0],
                capability=lambda: self.capability,
                limits=self.limits,
                agreement={"network": "lenet"},
            )
        )

    def step(self, algorithm: Algorithm, gradient: list[float], batch_size: int = 4) -> None:
        self.replica.gradients = gradient
        algorithm.step(batch_size)
