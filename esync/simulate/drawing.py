"""Random schedules: how many workers and servers, how fast and how steady they are, what messages take, who crashes."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from .cluster import ClusterModel
from .coordination import StateServerModel
from .devices import DeviceModel, Pause
from .network import Link
from .servers import ServerModel
from .world import WorkerModel

MODES = ("esync", "sync", "async", "dcasgd", "ssp")


@dataclass(frozen=True)
class Schedule:
    """What was drawn from a seed.

    Attributes:
        mode: the algorithm.
        seed: of the schedule.
        cluster: the models.
        rounds: to run for.
        delay: largest number of seconds that a message takes besides; drawn for each.
        buckets: values in one message.
        leases: whether workers keep leases.
        local_iterations: fixed number of them (mode esync); None: the state server decides.
        query_mode: of the questions to it.
        run_ahead: local iterations that a worker may do during an exchange (mode esync); 0: it waits.
        staleness: of mode ssp.
    """

    mode: str
    seed: int
    cluster: ClusterModel
    rounds: int
    delay: float
    buckets: int
    leases: bool
    local_iterations: int | None
    query_mode: str = "blocking"
    run_ahead: int = 0
    staleness: int = 0

    @property
    def steady(self) -> bool:
        """Whether every iteration of a device takes the same time, and nobody crashes."""
        models = [worker.device for worker in self.cluster.workers]
        crashes = any(worker.crashes for worker in self.cluster.workers)
        return not crashes and not any(model.jitter or model.pauses or model.speed for model in models)


def draw(mode: str, seed: int, crashes: bool = True) -> Schedule:
    """The schedule of a seed."""
    random = np.random.default_rng(np.random.SeedSequence([seed, MODES.index(mode)]))
    workers, rounds = int(random.integers(1, 7)), int(random.integers(2, 9))
    steady = random.random() < 0.3
    times = np.exp(random.uniform(np.log(0.03), np.log(2.0), workers))
    lasts = float(times.max()) * rounds
    models = []
    for rank in range(workers):
        device = DeviceModel(step_time=float(times[rank]))
        fallen: list[tuple[float, float]] = []
        if not steady:
            device = DeviceModel(
                step_time=float(times[rank]),
                jitter=float(random.choice([0.0, 0.1, 0.3])),
                distribution=str(random.choice(["normal", "lognormal", "uniform", "exponential"])),
                speed=[(float(random.uniform(0, lasts)), float(random.uniform(0.3, 2.0)))] * int(random.random() < 0.2),
                pauses=[Pause(float(random.uniform(0, lasts)), float(random.uniform(0.01, 2)))]
                * int(random.random() < 0.2),
            )
            moment = 0.0 if rank else 1.0  # a worker 0 that dies before it has begun the job takes the job with it
            while crashes and random.random() < 0.25:
                moment += float(random.uniform(0, lasts))
                after = float(random.exponential(1.0)) + 0.001
                fallen.append((moment, after))
                moment += after
        models.append(WorkerModel(rank, f"host{int(random.integers(0, workers))}", f"d{rank}", device, tuple(fallen)))
    bandwidth = float(random.choice([np.inf, 1e3, 1e5]))
    latencies: dict[str, float] = defaultdict(lambda: 0.0)
    latencies |= {f"host{index}": float(random.uniform(0, 0.03)) for index in range(workers)}
    servers = tuple(
        ServerModel(f"server{shard}", float(random.choice([0.0, 1e-4, 0.01])))
        for shard in range(int(random.integers(1, 4)))
    )
    cluster = ClusterModel(
        workers=tuple(models),
        servers=servers,
        state_server=StateServerModel("server0", float(random.choice([0.0, 1e-3]))),
        link=lambda host: Link(bandwidth, latencies[host]),
        evaluation_time=1.0,
    )
    return Schedule(
        mode=mode,
        seed=seed,
        cluster=cluster,
        rounds=rounds,
        delay=0.0 if steady else float(random.choice([0.0, 0.01, 0.2])),
        buckets=int(random.integers(1, 4)),
        leases=bool(random.random() < 0.7),
        local_iterations=int(random.integers(1, 4)) if mode == "esync" and random.random() < 0.2 else None,
        query_mode=str(random.choice(["blocking", "delayed-ack"])),
        run_ahead=int(random.integers(1, 8)) if mode == "esync" and random.random() < 0.3 else 0,
        staleness=int(random.integers(0, 4)) if mode == "ssp" else 0,
    )
