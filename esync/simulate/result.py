"""Result of a simulation as plain data for JSON, bitwise reproducible for the same seed."""

from typing import Any

from esync.reports import metrics

from .. import config
from ..arguments import choose_algorithm
from ..runtime.user_functions import short_name
from .metrics import WorkerMetrics
from .simulation import Simulation


def result(simulation: Simulation, description: str) -> dict[str, Any]:
    """Return the result; times in seconds, and speeds per second, of virtual time."""
    options, workers = simulation.options, simulation.workers
    began = min(sums.began for sums in workers)
    elapsed = max(sums.ended for sums in workers) - began
    samples = simulation.samples
    division = choose_algorithm(options).batch_division
    sizes = simulation.cluster.batch_sizes(options.batch_size, division)
    step_times = [device.mean for device in simulation.cluster.divided_devices(options.batch_size, division)]
    speeds = [size / seconds for size, seconds in zip(sizes, step_times, strict=True)]
    limit = sum(speeds)
    throughput = metrics.rate(samples, elapsed)
    times = [accuracy.time for accuracy in simulation.accuracies]
    accuracies = [accuracy.accuracy for accuracy in simulation.accuracies]
    return {
        "cluster": description,
        "network": short_name(options.network),
        "mode": options.mode,
        "seed": options.seed,
        "numerics": "real" if simulation.numerics.evaluates else "none",
        "workers": len(workers),
        **({"per_host": True} if simulation.cluster.host_groups() else {}),
        **({"batch_by_speed": True} if simulation.cluster.step_times else {}),
        "rounds": simulation.rounds,
        "batch_size": options.batch_size,
        "samples": samples,
        "seconds": elapsed,
        "throughput": throughput,
        "limit": limit,
        "efficiency": metrics.efficiency(throughput, limit),
        "speedup_limit": metrics.speedup_limit(speeds),
        **_share(simulation),
        **({"chosen_settings": list(workers[0].settings)} if workers[0].settings else {}),
        "final_accuracy": accuracies[-1] if accuracies else None,
        "final_parts": dict(simulation.accuracies[-1].parts) if accuracies else {},
        "time_to": {
            f"{target:g}": metrics.time_to_target(times, accuracies, target)
            for target in sorted({*config.SIMULATE_TIMES_TO, options.target_accuracy or config.TARGET_ACCURACY})
        }
        if accuracies
        else {},
        "accuracies": [[accuracy.round, accuracy.time, accuracy.accuracy] for accuracy in simulation.accuracies],
        "questions": simulation.state_server.questions,
        "servers": [server.host for server in simulation.cluster.servers],
        "server_seconds": [node.busy for node in simulation.state.nodes],
        "traffic": _traffic(simulation),
        "devices": [_device(*figures) for figures in zip(workers, sizes, step_times, strict=True)],
    }


def _share(simulation: Simulation) -> dict[str, Any]:
    """Return the share of the samples that was used synchronously.

    Empty for runs that do not switch between synchronous and asynchronous training.
    """
    if not simulation.options.algorithm.switches_synchrony:
        return {}
    samples = simulation.samples
    return {"bsp_share_done": simulation.samples_together / samples if samples else None}


def _traffic(simulation: Simulation) -> dict[str, dict[str, int]]:
    """Return the bytes that every host has sent and received."""
    sent, received = simulation.network.sent.copy(), simulation.network.received.copy()
    server = simulation.cluster.state_server.host
    for sums in simulation.workers:
        host = sums.worker.host
        for question in (question for world in sums.worlds for question in world.questions):
            for source, target, size in ((host, server, question.sent), (server, host, question.received)):
                sent[source] += size
                received[target] += size
    return {host: {"sent": round(sent[host]), "received": round(received[host])} for host in sorted({*sent, *received})}


def _device(sums: WorkerMetrics, batch_size: int, step_time: float) -> dict[str, Any]:
    sent, received = (sum(world.traffic[way] for world in sums.worlds) for way in (0, 1))
    computing = sum(world.simulated.computing for world in sums.worlds)
    return {
        "rank": sums.worker.rank,
        "host": sums.worker.host,
        "device": sums.worker.folder,
        "step_time": step_time,
        "batch_size": batch_size,
        "rounds": sums.rounds,
        "iterations": sums.iterations,
        "computing": computing,
        "computing_ratio": metrics.rate(computing, sums.left - sums.began),
        "wait": {"mean": sums.waits / max(sums.rounds, 1), "max": sums.longest_wait},
        "transfer": sums.transfers / max(sums.rounds, 1),
        "questions": sum(question.waited for world in sums.worlds for question in world.questions),
        "bytes_sent": sent,
        "bytes_received": received,
        "polls": sum(connection.polls for world in sums.worlds for connection in world.connections),
        "bytes_of_questions": sum(
            question.sent + question.received for world in sums.worlds for question in world.questions
        ),
        "crashes": len(sums.worlds) - 1,
    }
