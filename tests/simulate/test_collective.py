"""Exchanges by a collective in virtual time, with real sums and rules."""

import numpy as np
import pytest

from esync.exchange import STATISTICS, WEIGHTS, JobAbortedError, Payload, Specification
from esync.exchange.protocol.round_state import Limits
from esync.rules import Step, sgd
from esync.runtime.straggler_injection import Straggler
from esync.simulate.collective import SharedCollectiveState, SimulatedCollective
from esync.simulate.engine import SimulationEngine
from esync.simulate.network import Link, Network
from esync.simulate.result import result

from .modelling import cluster, simulate

BANDWIDTH, LATENCY = 100e6, 1e-3
SIZES = {WEIGHTS: 3001, STATISTICS: 11}


class Vector:
    """A source, and a model."""

    def __init__(self, *seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.values = rng.standard_normal(SIZES[WEIGHTS]).astype(np.float32)
        self.statistics = rng.standard_normal(SIZES[STATISTICS]).astype(np.float32)

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        out[:] = (self.values if stop > SIZES[STATISTICS] else self.statistics)[start:stop]

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        (self.values if vector == WEIGHTS else self.statistics)[start : start + values.size] = values


def play(name: str, workers: int, fail: bool = False) -> tuple[list[Vector], list[list[float]]]:
    """Run two rounds; return the models and the times of each worker.

    The times are (wait, transfer) of the first round, and the time at the end.
    """
    engine = SimulationEngine()
    network = Network(engine, lambda host: Link(BANDWIDTH, LATENCY / 2), [])
    side = SharedCollectiveState(engine, network, [f"host-{rank}" for rank in range(workers)], name)
    models = [Vector(rank) for rank in range(workers)]
    timings: list[list[float]] = [[] for _ in range(workers)]

    def live(rank: int) -> None:
        exchange = SimulatedCollective(Specification("sgd", True), side, rank, Straggler((), lambda: engine.now))
        model = models[rank]
        exchange.join(SIZES, Limits(rounds=2), {})
        exchange.begin(dict.fromkeys(SIZES, model), model)
        finished = False
        for number in range(1, 10):
            engine.pass_time(0.1 * (rank + 1))
            if fail and rank == 1:
                exchange.abort("bad luck")
                return
            payload = Payload(dict.fromkeys(SIZES, Vector(rank, number)), 5, 0.1, 0.9)
            result = exchange.start(payload, model).wait()
            timings[rank] += [result.wait, result.transfer]
            if finished := result.finished:
                break
        assert finished
        timings[rank].append(engine.now)

    for rank in range(workers):
        engine.spawn(f"worker {rank}", lambda rank=rank: live(rank))
    engine.run()
    return models, timings


@pytest.mark.parametrize(
    ("name", "workers"), [("ring", 3), ("butterfly", 4), ("binary-blocks", 5), ("mpi", 2), ("auto", 3)]
)
def test_simulated_collective_computes_the_model_and_its_times(name: str, workers: int) -> None:
    models, timings = play(name, workers)
    weights, velocity = Vector(0).values, None
    for number in (1, 2):
        mean = np.mean([Vector(rank, number).values for rank in range(workers)], axis=0)
        weights, velocity = sgd(weights, mean, velocity, Step(0.1, 0.9))
    for model in models:
        np.testing.assert_allclose(model.values, weights, rtol=1e-4, atol=1e-5)
        assert model.values.tobytes() == models[0].values.tobytes()
        assert model.statistics.tobytes() == models[0].statistics.tobytes()
    for rank, (wait, transfer, *_) in enumerate(timings):
        assert wait == pytest.approx(0.1 * (workers - 1 - rank) + (rank < workers - 1) * LATENCY, abs=1e-6)
        assert 2 * LATENCY < transfer < 20 * LATENCY


def test_simulated_collective_abort_ends_the_run_of_all() -> None:
    with pytest.raises(JobAbortedError, match="bad luck"):
        play("ring", 3, fail=True)


@pytest.mark.parametrize("mode", ["esync", "sync"])
def test_simulated_worker_trains_over_a_collective(mode: str) -> None:
    modelled = cluster(0.1, 0.2, 0.3, link=Link(BANDWIDTH, LATENCY / 2))
    simulation = simulate(modelled, f"--mode={mode}", "--collective=ring")
    assert simulation.rounds == 5
    model = 4 * sum((simulation.numerics.wire or {}).values())
    for sums in simulation.workers:
        assert sums.rounds == 5
        assert sums.worlds[0].connections[0].sent == pytest.approx(5 * model * 4 / 3, rel=0.01)
        assert sums.transfers / 5 == pytest.approx(model * 4 / 3 / BANDWIDTH, rel=0.1)


def test_simulated_collective_with_overlap_hides_the_exchange() -> None:
    modelled = cluster(0.5, 1.0, 1.5, link=Link(1.25e8, 1e-4))

    def efficiency(*flags: str) -> float:
        simulation = simulate(modelled, "--collective=ring", "-n", "resnet18-v1", *flags, rounds=20)
        return float(result(simulation, "test")["efficiency"])

    assert efficiency() < 0.8  # an exchange takes half a second, the slowest iteration 1.5
    assert efficiency("--overlap") > 0.95
