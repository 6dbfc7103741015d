"""A simulation that is long enough, without its start and its end."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import config
from ..simulate.job import SimulationJob, run

Result = Mapping[str, Any]


def steady(job: SimulationJob, workers: int) -> dict[str, Any]:
    """Simulate a job until its samples per second are steady, and return the steady part.

    The job is simulated for `config.PLAN_ROUNDS` rounds (fewer where its workers are many), and for
    twice as many. Both runs begin alike, so their difference is what happens in the second half.
    The rounds are doubled again until the samples per second of two such halves, or of two whole
    runs, differ by less than `config.PLAN_STEADY`, or a run has more than `config.PLAN_EVENTS`
    events.

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
        whole, events = _run(job, rounds)
        earlier, half = half, between(before, whole)
        alike = _alike(whole, before) or (earlier is not None and _alike(half, earlier))
        if alike or events > config.PLAN_EVENTS:
            return half
        before = whole


def between(first: Result, second: Result) -> dict[str, Any]:
    """Return what happens between the end of a run and that of one that goes on for longer.

    Keys are those of `simulate.result`, but a device's `wait` and `transfer` are sums over its
    rounds, in seconds. Samples count when they are exchanged: a run that ends just after a long
    round would have more of them than its devices compute in that time, which is the most.
    """
    seconds = second["seconds"] - first["seconds"]
    devices = [_device(*pair) for pair in zip(first["devices"], second["devices"], strict=True)]
    samples = min(second["samples"] - first["samples"], _computed(second, devices))
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
    }


def _computed(whole: Result, devices: Sequence[Result]) -> float:
    """Return the samples that devices compute in the part of a run in which they do so much."""
    batch = whole["limit"] / sum(1 / device["step_time"] for device in whole["devices"])
    computed = 0.0
    for device, part in zip(whole["devices"], devices, strict=True):
        done = device["iterations"]  # of a device that speeds up they take less than its step time
        lasting = min(device["step_time"], device["computing"] / done) if done else device["step_time"]
        computed += part["computing"] / lasting
    return batch * computed


def _device(first: Result, second: Result) -> dict[str, Any]:
    """Return what a device does between the ends of two runs."""
    return {
        **{name: second[name] for name in ("host", "device", "step_time")},
        **{name: second[name] - first[name] for name in ("rounds", "iterations", "computing", "questions")},
        "wait": second["wait"]["mean"] * second["rounds"] - first["wait"]["mean"] * first["rounds"],
        "transfer": second["transfer"] * second["rounds"] - first["transfer"] * first["rounds"],
    }


def _run(job: SimulationJob, rounds: int) -> tuple[dict[str, Any], int]:
    """Return the result of so many rounds, and the number of events."""
    done = run(replace(job, typed={**job.typed, "rounds": rounds}))
    return done.result, done.real["events"]


def _alike(one: Result, other: Result) -> bool:
    return bool(abs(one["throughput"] - other["throughput"]) < config.PLAN_STEADY * one["throughput"])
