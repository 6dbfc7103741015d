"""Model of time: a simulation that is long enough, without its start and its end."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import config
from ..simulate.job import SimulationJob, run

Result = Mapping[str, Any]


def steady(job: SimulationJob, workers: int) -> dict[str, Any]:
    """Simulate a job until its samples per second are steady, and return the steady part.

    The job is simulated for `config.PLAN_ROUNDS` rounds (fewer with many workers), and for twice as
    many. Both runs begin alike, so that their difference is the second half. The rounds are doubled
    until the samples per second of two such halves, or of two whole runs, differ by less than
    `config.PLAN_STEADY`, or a run has more than `config.PLAN_EVENTS` events.

    Args:
        job: what to simulate; its limits are added here.
        workers: number of its workers.

    Raises:
        ExpectedError: the job cannot be simulated; the message says why.
    """
    rounds = max(2, min(config.PLAN_ROUNDS, config.PLAN_COMMITS // workers))
    before, _ = _run(job, rounds)
    half: dict[str, Any] | None = None
    while True:
        rounds *= 2
        result, events = _run(job, rounds)
        earlier, half = half, between(before, result)
        alike = _alike(result, before) or (earlier is not None and _alike(half, earlier))
        if alike or events > config.PLAN_EVENTS:
            return half
        before = result


def between(first: Result, second: Result) -> dict[str, Any]:
    """Return the part of the longer run `second` after the end of the run `first`.

    Keys are those of `simulate.result`, but a device's `wait` and `transfer` are sums over its
    rounds, in seconds, and `chosen_settings` are the last ones. Samples are counted when they are
    exchanged, so that a part which ends just after a long round may count more than its devices
    compute in that time; that limits `samples`, unless batches change.
    """
    seconds = second["seconds"] - first["seconds"]
    devices = [_device(*pair) for pair in zip(first["devices"], second["devices"], strict=True)]
    samples = second["samples"] - first["samples"]
    if "batch_by_speed" not in second:
        samples = min(samples, _computed(second, devices))
    throughput = samples / seconds
    return {
        "seconds": seconds,
        "samples": samples,
        "rounds": second["rounds"] - first["rounds"],
        "throughput": throughput,
        "efficiency": throughput / second["limit"],
        "servers": second["servers"],
        "server_seconds": [
            after - before for after, before in zip(second["server_seconds"], first["server_seconds"], strict=True)
        ],
        "traffic": {
            host: {way: size - first["traffic"][host][way] for way, size in ways.items()}
            for host, ways in second["traffic"].items()
        },
        "devices": devices,
        "chosen_settings": second.get("chosen_settings", [{}])[-1],
    }


def _computed(result: Result, parts: Sequence[Result]) -> float:
    """Return the samples that the devices of a run compute in parts of it.

    A device computes for c seconds in its part, and for C seconds and k iterations in the whole run.
    An iteration takes t = min(step_time, C ÷ k) seconds, less than step_time on a device that speeds
    up. With batches of b samples, all devices compute b · Σ c ÷ t.
    """
    devices = result["devices"]
    step_time, iterations, computing = (
        np.array([device[key] for device in devices], float) for key in ("step_time", "iterations", "computing")
    )
    mean = np.divide(computing, iterations, out=step_time.copy(), where=iterations > 0)
    batch_size = result["limit"] / np.sum(1 / step_time)
    computing_in_part = np.array([part["computing"] for part in parts], float)
    return float(batch_size * np.sum(computing_in_part / np.minimum(step_time, mean)))


def _device(first: Result, second: Result) -> dict[str, Any]:
    """Return the figures of a device between the ends of two runs."""
    return {
        **{name: second[name] for name in ("host", "device", "step_time")},
        **{name: second[name] - first[name] for name in ("rounds", "iterations", "computing", "questions")},
        "wait": second["wait"]["mean"] * second["rounds"] - first["wait"]["mean"] * first["rounds"],
        "transfer": second["transfer"] * second["rounds"] - first["transfer"] * first["rounds"],
    }


def _run(job: SimulationJob, rounds: int) -> tuple[dict[str, Any], int]:
    """Return the result of a simulation of `rounds` rounds, and the number of its events."""
    done = run(replace(job, typed={**job.typed, "rounds": rounds}))
    return done.result, done.real["events"]


def _alike(first: Result, second: Result) -> bool:
    return bool(abs(first["throughput"] - second["throughput"]) < config.PLAN_STEADY * first["throughput"])
