"""Workers of mode sync that step two optimizers in turn, and die or begin an iteration anew at any moment."""

import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from esync.algorithms import SSGD, AlgorithmContext, Hyper
from esync.algorithms.context import OptimizerPart
from esync.exchange import STATISTICS, WEIGHTS, Flat, Specification
from esync.exchange.collectives.engine import CollectiveEngine
from esync.exchange.collectives.memory import MemoryNetwork
from esync.exchange.collectives.worker_exchange import CollectiveExchange
from esync.exchange.protocol.resume_negotiation import RunProgress
from esync.exchange.protocol.round_state import Limits, RoundState
from esync.exchange.protocol.scalars import COMMON
from esync.rules import PLAIN_SGD
from esync.runtime.phase_timer import PhaseTimer
from esync.runtime.watchdog import Watchdog
from esync.simulate.timing import TimedReplica

from ..support.memory_cluster import MemoryCluster, MemoryStore
from ..support.memory_world import MemoryWorld, SteppedDevice
from ..support.vectors import Held

FURTHER = "weights of optimizer 2"
SIZES = {WEIGHTS: 5, FURTHER: 4, STATISTICS: 0}
DECAY = 1e-6  # by which the rates of the steps differ


class Model(TimedReplica):
    """Two vectors of weights, whose gradients are ones.

    Attributes:
        hooks: number of calls of the algorithm's hooks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hooks = 0
        self.held = Held(SIZES)
        self.write = self.held.write
        self.statistics = Flat(self.held.vectors[STATISTICS])

    @property
    def vectors(self) -> Any:
        return {name: Flat(self.held.vectors[name]) for name in (WEIGHTS, FURTHER)}

    def gradient(self, factor: float, vector: str = WEIGHTS) -> Any:
        return Flat(np.ones(SIZES[vector], np.float32))

    def call_hook(self, *arguments: Any, **options: Any) -> None:
        self.hooks += 1


class Contributing(SSGD):
    """Mode sync with a hook of an algorithm of one's own."""

    def before_exchange(self, model: Any) -> None:
        pass


def train(world: Any, chance: random.Random, further_steps: int, rounds: int, overflows: float) -> Model:
    """Take `further_steps` steps of a further optimizer, and one of the main one, in every iteration."""
    algorithm, model = Contributing(), Model()

    def part(vector: str) -> OptimizerPart:
        def hyper() -> Hyper:
            assert algorithm.result is not None
            return Hyper(1.0, 0.0, DECAY * (algorithm.updates_of(vector) + algorithm.result.round), 1.0)

        return OptimizerPart({vector: (1.0, 1.0)}, PLAIN_SGD, hyper, float)

    main, further = part(WEIGHTS), part(FURTHER)
    replica, limits = cast(Any, model), Limits(rounds=rounds)
    algorithm.start(AlgorithmContext(replica, world, main.hyper, lambda: 0.1, limits, optimizers=[main, further]))
    while not algorithm.finished:
        steps = chance.randint(0, further_steps) if chance.random() < overflows else further_steps + 1
        for _ in range(min(steps, further_steps)):
            algorithm.step_further(further, 1)
        if steps > further_steps:
            algorithm.step(1)
        else:
            algorithm.skip()
    algorithm.close()
    return model


def check(models: list[Model], further_steps: int, rounds: int) -> None:
    """Check that every step of an iteration counts once, and that all workers have the same model."""
    for vector, steps in ((WEIGHTS, rounds), (FURTHER, further_steps * rounds)):
        values = [model.held.vectors[vector] for model in models]
        assert np.allclose(values[0], -steps, atol=1e-2)
        assert len({value.tobytes() for value in values}) == 1


class Run:
    """A random run: workers and servers, steps in an iteration, deaths and overflows."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.workers, self.servers, self.each = 2, chance.choice((1, 2, 2, 3)), chance.randint(1, 3)
        self.rounds, self.overflows = chance.randint(2, 4), chance.choice((0.0, 0.2))
        self.cluster = MemoryCluster(self.workers, chance.randrange, self.servers, bucket_elements=2)
        self.models: dict[int, Model] = {}
        for _ in range(chance.choice((1, 2))):
            self.cluster.at(
                chance.randrange(100, 100 + 40 * self.servers * self.rounds * (self.each + 1)), self.replace
            )

    def replace(self) -> None:
        """Let a worker die when something of it has come to one server, and another process take its slot."""
        servers = [node.endpoint.server for node in self.cluster.nodes]
        sent = re.fullmatch(r"an array of key (\d+) of worker (\d+)", self.cluster.history[-1])
        started = all(server and server.round_state.version for server in servers)
        if not (started and sent and int(sent[1]) < self.servers) or int(sent[2]) in self.models:
            self.cluster.at(self.cluster.steps + 1, self.replace)
            return
        self.cluster.kill(rank := int(sent[2]))
        store = MemoryStore(self.cluster, rank, nonce=100 + self.cluster.steps, recovery=True)
        self.cluster.holders[rank] = store.nonce
        self.cluster.spawn(f"worker {rank} again", store.nonce, lambda: self.work(store), fatal=True)

    def work(self, store: MemoryStore) -> None:
        """The program of a worker."""
        world = MemoryWorld(store, SteppedDevice(store))
        self.models[store.rank] = train(world, random.Random(store.nonce), self.each, self.rounds, self.overflows)

    def check(self) -> None:
        """Run it to its end."""
        self.cluster.run_all(self.work)
        assert {node.endpoint.server.round_state.round for node in self.cluster.nodes} == {self.rounds}
        check([self.models[rank] for rank in range(self.workers)], self.each, self.rounds)


def test_worker_of_a_collective_begins_an_iteration_anew_without_the_steps_taken() -> None:
    network = MemoryNetwork(2)

    def work(rank: int) -> Model:
        def exchange(specification: Specification) -> CollectiveExchange:
            return CollectiveExchange(
                specification, CollectiveEngine("ring", network.transports[rank]), Watchdog(), 20, 20
            )

        device = SimpleNamespace(paused=nullcontext, end_iteration=float)
        world = SimpleNamespace(device=device, recorder=PhaseTimer(time.monotonic), exchange=exchange, step_times=())
        return train(world, random.Random(rank), 3, 6, 0.3)

    with ThreadPoolExecutor(2) as pool:
        models = list(pool.map(work, range(2), timeout=60))
    check(models, 3, 6)
    assert [model.hooks for model in models] == [6, 6]


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 8, 24, 61, 62, 83])
def test_each_step_of_an_iteration_counts_once_whoever_begins_it_anew(seed: int) -> None:
    Run(seed).check()


def test_resumed_run_goes_on_with_the_counts_of_steps() -> None:
    """Also on a worker without a part of the checkpoint, or that is replaced before the first round."""
    state = RoundState(2, True, added={"steps of weights": COMMON, "others": "sum"})
    state.join(0, 1, 0.0)
    state.resume(RunProgress(3, 6, 9, 1.0, scalars={"steps of weights": 3.0, "others": 4.0}), 0.0)
    state.join(1, 2, 0.0)
    assert state.added_scalars == {"steps of weights": 3.0}
