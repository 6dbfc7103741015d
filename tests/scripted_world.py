"""A world for one worker, through the real seams: other workers, state server and clock are scripted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from esync.algorithms import Algorithm, Hyper, Surroundings
from esync.exchange import Exchange, Payload, Result, Service
from esync.exchange.ledger import Limits
from esync.handles import Completed
from esync.measure import Recorder


class Array:
    """A flat vector as the exchange reads it."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = np.float32(values)

    @property
    def size(self) -> int:
        return self.values.size

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        out[:] = self.values[start:stop]


def all_of(source: Any, count: int) -> list[float]:
    """All values of an exchange.Source."""
    out = np.full(count, np.nan, np.float32)
    source.read(0, count, out)
    return out.tolist()


class Replica:
    """Two weights and one statistic; a local step adds the "gradient" (here: what is to be added) to the weights."""

    def __init__(self) -> None:
        self.weights, self.statistics = Array([0, 0]), Array([5])
        self.gradients = [0.0, 0.0]
        self.anchor: np.ndarray | None = None
        self.is_open = False
        self.steps: list[int] = []

    def open(self) -> None:
        assert not self.is_open
        self.is_open = True

    def close(self) -> None:
        assert self.is_open
        self.is_open = False

    def keep_anchor(self) -> None:
        self.anchor = self.weights.values.copy()

    def gradient(self, factor: float) -> Array:
        assert self.is_open
        return Array(np.float32(self.gradients) * factor)

    def update(self) -> Array:
        assert self.is_open
        assert self.anchor is not None
        return Array(self.weights.values - self.anchor)

    def local_step(self, batch_size: int) -> None:
        assert not self.is_open
        self.steps.append(batch_size)
        self.weights.values = self.weights.values + np.float32(self.gradients)

    def write(self, statistics: bool, start: int, values: np.ndarray) -> None:
        assert self.is_open
        (self.statistics if statistics else self.weights).values[start : start + len(values)] = values
        if not statistics and self.anchor is not None:
            self.anchor[start : start + len(values)] = values


@dataclass
class Sent:
    """What was in a payload."""

    values: list[float]
    statistics: list[float] | None
    samples: int
    learning_rate: float
    momentum: float
    weight_decay: float


class ScriptedExchange(Exchange):
    """Answers each exchange with the next of `answers`: (new weights, whether that ends the run, whether it counted).

    `log` has every call, `sent` every payload; `beginning` is the common model.
    """

    def __init__(self, service: Service, rank: int, answers: list[tuple[list[float], bool, bool]]) -> None:
        self.service, self.rank, self.workers = service, rank, 3
        self.replacement, self.exchanges = False, 0
        self.answers = answers
        self.log: list[Any] = []
        self.sent: list[Sent] = []
        self.rounds = 0
        self.beginning: Sequence[float] = [1.0, 2.0]

    def join(self, weights: int, statistics: int, limits: Limits, agreement: dict[str, Any]) -> None:
        self.sizes = weights, statistics
        self.log.append(("join", weights, statistics, limits, agreement))

    def begin(self, weights: Any, statistics: Any, model: Any) -> Result:
        self.log.append(("begin", all_of(weights, self.sizes[0]), all_of(statistics, self.sizes[1])))
        model.write(False, 0, np.float32(self.beginning))
        return Result(self.exchanges, 0, 0, 0.0, 0.0, finished=False)

    def start(self, payload: Payload, model: Any) -> Completed[Result]:
        statistics = None if payload.statistics is None else all_of(payload.statistics, self.sizes[1])
        self.sent.append(
            Sent(
                all_of(payload.values, self.sizes[0]),
                statistics,
                payload.samples,
                payload.learning_rate,
                payload.momentum,
                payload.weight_decay,
            )
        )
        self.log.append("exchange")
        weights, finished, used = self.answers.pop(0)
        model.write(False, 0, np.float32(weights))
        self.rounds += used
        return Completed(Result(self.rounds, 0, 0, 0.5, 0.1, finished, used))

    def stop(self) -> None:
        self.log.append("stop")

    def abort(self, reason: str) -> None:
        self.log.append(("abort", reason))

    def close(self) -> None:
        self.log.append("close")


class ScriptedCoordination:
    """Says READY as the script does, and writes down every call, in the log of the exchange too."""

    def __init__(self, script: list[bool], log: list[Any]) -> None:
        self.round = 1
        self.script, self.log = script, log

    def init(self, num_workers: int, epsilon: float, slowest_iterations: int = 1) -> None:
        self.log.append(("init", num_workers, epsilon))

    def ask(self, iteration: int, capability: float) -> Completed[bool]:
        self.log.append(("ask", self.round, iteration, capability))
        return Completed(iteration > 0 and self.script.pop(0))

    def reset(self, round: int) -> None:
        self.log.append(("reset", round))
        self.round = round


class Device:
    """Every iteration takes 2 seconds of a clock that moves only then."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def begin_iteration(self) -> None:
        pass

    def end_iteration(self) -> float:
        self.time += 2.0
        return 2.0


@dataclass
class World:
    """Hands out the scripted parts."""

    rank: int = 0
    answers: list[tuple[list[float], bool, bool]] = field(default_factory=list)
    ready: list[bool] = field(default_factory=list)
    prepare: Callable[[ScriptedExchange], None] = lambda exchange: None
    capability: float = 0.25
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.device = Device()
        self.recorder = Recorder(self.device.now)
        self.replica = Replica()
        self.addresses: list[str | None] = []
        self.hyper = [Hyper(0.1, 0.9, 0.01, 1.0)]

    def exchange(self, service: Service) -> ScriptedExchange:
        self.made = ScriptedExchange(service, self.rank, self.answers)
        self.prepare(self.made)
        return self.made

    def coordination(self, address: str | None, rank: int) -> ScriptedCoordination:
        self.addresses.append(address)
        self.state_server = ScriptedCoordination(self.ready, self.made.log)
        return self.state_server

    def start(self, algorithm: Algorithm) -> None:
        algorithm.start(
            Surroundings(
                replica=self.replica,
                world=self,  # type: ignore[arg-type]
                hyper=lambda: self.hyper.pop(0) if len(self.hyper) > 1 else self.hyper[0],
                capability=lambda: self.capability,
                limits=self.limits,
                agreement={"network": "lenet"},
            )
        )

    def step(self, algorithm: Algorithm, gradient: list[float], batch_size: int = 4) -> None:
        self.replica.gradients = gradient
        algorithm.step(batch_size)
