"""Small modelled clusters for the tests, timing only unless told otherwise."""

import math
from dataclasses import replace

from esync.launch import flags
from esync.simulate.cluster import ClusterModel
from esync.simulate.coordination import StateServerModel
from esync.simulate.devices import DeviceModel
from esync.simulate.network import Link
from esync.simulate.servers import ServerModel
from esync.simulate.simulation import Simulation, TimingNumerics
from esync.simulate.world import WorkerModel


def cluster(*step_times, link=None, servers=1, message_time=0.0, crashes=(), answer_time=0.0, **device):
    """Workers w0, w1 … on hosts of their own; `crashes` is a list of (rank, at, restart_after)."""
    return ClusterModel(
        workers=tuple(
            WorkerModel(
                rank,
                f"w{rank}",
                "cpu",
                DeviceModel(step_time=seconds, **device),
                tuple((at, after) for who, at, after in crashes if who == rank),
            )
            for rank, seconds in enumerate(step_times)
        ),
        servers=tuple(ServerModel(f"s{shard}", message_time, math.inf) for shard in range(servers)),
        state_server=StateServerModel("s0", answer_time),
        link=lambda host: link or Link(),
        evaluation_time=1.0,
    )


def with_devices(modelled, ranks, **changes):
    """The same cluster, in which the devices of these ranks are changed."""
    workers = tuple(
        replace(worker, device=replace(worker.device, **changes)) if worker.rank in ranks else worker
        for worker in modelled.workers
    )
    return replace(modelled, workers=workers)


def options(*words, rounds=5):
    return flags.parse([f"--rounds={rounds}", *words])


def simulate(modelled, *words, rounds=5, **arguments):
    """A finished simulation without gradients."""
    chosen = options(*words, rounds=rounds)
    simulation = Simulation(modelled, chosen, TimingNumerics(chosen, 60_000), **arguments)
    simulation.run()
    return simulation
