"""Measure the servers of a cluster, each on its host, by a real one that runs there for a moment."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import config
from ..exchange.protocol.layout import Layout
from ..launch.spec import ProcessSpec
from ..simulate.servers import ServerModel, Sizes
from ..simulate.store import noticed_at
from .measuring_processes import MeasuringProcesses


@dataclass(frozen=True)
class ServerFigures:
    """What a parameter server costs, as `simulate.servers.ServerModel` means it.

    Attributes:
        message_time: seconds for every message.
        throughput: bytes per second that it adds up and hands out; None where messages cost it all.
    """

    message_time: float
    throughput: float | None

    @classmethod
    def of(cls, poll: float, transfer: float, vectors: Mapping[str, int]) -> "ServerFigures":
        """Return the figures with which the simulator's exchange takes as long as the real one.

        What a worker does for an exchange is counted as the server's.

        Args:
            poll: seconds that the real server needs for a message and its answer.
            transfer: seconds of an exchange of the model with one worker on the same host.
            vectors: name of each vector of the model → number of its values.
        """
        sizes = Sizes.of(Layout(vectors, 1), 1)

        def simulated(message_time: float, seconds_per_byte: float) -> float:
            throughput = 1 / seconds_per_byte if seconds_per_byte else math.inf
            return exchange_seconds(ServerModel("", message_time, throughput), sizes)

        message_time = min(poll, solve(lambda each: simulated(each, 0.0), transfer, poll))
        size, _ = sizes.amount(0)
        per_byte = solve(lambda each: simulated(message_time, each), transfer, transfer / size)
        return cls(message_time, 1 / per_byte if per_byte * size > 1e-3 * transfer else None)


def exchange_seconds(model: ServerModel, sizes: Sizes) -> float:
    """Return the seconds of an exchange between the simulator's server and one worker beside it."""
    size, messages = sizes.amount(0)
    used = model.cost(messages + 1, size + sizes.message)
    return noticed_at(0.0, used, 0.0)[0] + model.cost(messages, size)


def solve(increasing: Callable[[float], float], wanted: float, most: float, halvings: int = 60) -> float:
    """Return where an increasing function has the wanted value, between 0 and `most`.

    The interval is halved so many times.
    """
    low, high = 0.0, most
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < wanted else (low, middle)
    return (low + high) / 2


def run_probes(
    specs: Sequence[ProcessSpec], logs: Path, notify: Callable[[str], None]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Run processes that measure something and end by themselves, one of each host at a time.

    Returns:
        Their reports by name, and why others have none.
    """
    reports: dict[str, dict[str, Any]] = {}
    problems: dict[str, str] = {}
    left = list(specs)
    while left:
        turn = list({spec.host.name: spec for spec in reversed(left)}.values())
        left = [spec for spec in left if spec not in turn]
        _run_together(turn, logs, notify, reports, problems)
    return reports, problems


def _run_together(
    specs: Sequence[ProcessSpec],
    logs: Path,
    notify: Callable[[str], None],
    reports: dict[str, dict[str, Any]],
    problems: dict[str, str],
) -> None:
    names = {spec.name: f"{spec.role} on {spec.host.name}" for spec in specs}
    notify(f"servers: measuring the {', the '.join(names.values())}")
    begun = announced = time.monotonic()
    with MeasuringProcesses(specs, logs, notify) as processes:
        while processes.running:
            processes.turn()
            waiting = [name for name in names if processes.report(name) is None and not processes.failure(name)]
            if not waiting:
                break
            now = time.monotonic()
            if now - begun > config.MEASURE_START:
                problems.update(dict.fromkeys(waiting, f"has measured nothing within {config.MEASURE_START:.0f} s"))
                break
            if now - announced > config.MEASURE_ANNOUNCE:
                announced = now
                notify(f"servers: measuring the {', the '.join(map(names.__getitem__, waiting))} ({now - begun:.0f} s)")
        for name in names:
            report = processes.report(name)
            if report is not None:
                reports[name] = report
            elif name not in problems:
                problems[name] = processes.failure(name) or "has measured nothing"
