"""Measure the servers of a cluster by running each on its host for a moment."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import config
from ..exchange.protocol.layout import Layout
from ..launch.spec import ProcessSpec
from ..simulate.acknowledgement import noticed_at
from ..simulate.servers import ServerModel, message_bytes, model_amount
from .measuring_processes import MeasuringProcesses


@dataclass(frozen=True)
class ServerFigures:
    """Costs of a parameter server, as modelled by `simulate.servers.ServerModel`.

    Attributes:
        message_time: seconds for every message.
        throughput: bytes per second that it sums and sends; None if only messages take time.
    """

    message_time: float
    throughput: float | None

    @classmethod
    def of(cls, poll: float, transfer: float, vectors: Mapping[str, int]) -> "ServerFigures":
        """Return the figures with which the simulator's exchange takes as long as the real one.

        The worker's share of the time of an exchange is attributed to the server.

        Args:
            poll: seconds that the real server needs for a message and its answer.
            transfer: seconds of an exchange of the model with one worker on the same host.
            vectors: name of each vector of the model → number of its values.
        """
        layout = Layout(vectors, 1)

        def simulated(message_time: float, seconds_per_byte: float) -> float:
            throughput = 1 / seconds_per_byte if seconds_per_byte else math.inf
            return exchange_seconds(ServerModel("", message_time, throughput), layout)

        message_time = min(poll, solve(lambda seconds: simulated(seconds, 0.0), transfer, poll))
        size, _ = model_amount(layout)
        per_byte = solve(lambda byte_time: simulated(message_time, byte_time), transfer, transfer / size)
        return cls(message_time, 1 / per_byte if per_byte * size > 1e-3 * transfer else None)


def exchange_seconds(model: ServerModel, layout: Layout) -> float:
    """Return the seconds of an exchange between the simulator's server and one worker beside it."""
    size, messages = model_amount(layout)
    used = model.cost(messages + 1, size + message_bytes(1))
    return noticed_at(0.0, used, 0.0)[0] + model.cost(messages, size)


def solve(increasing: Callable[[float], float], target: float, upper: float, halvings: int = 60) -> float:
    """Return where an increasing function reaches `target`, between 0 and `upper`, by bisection."""
    low, high = 0.0, upper
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < target else (low, middle)
    return (low + high) / 2


def run_probes(
    specs: Sequence[ProcessSpec], logs: Path, notify: Callable[[str], None]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Run measuring processes that end by themselves, one per host at a time.

    Returns:
        Reports by name, and problems of the other processes by name.
    """
    reports: dict[str, dict[str, Any]] = {}
    problems: dict[str, str] = {}
    remaining = list(specs)
    while remaining:
        turn = list({spec.host.name: spec for spec in reversed(remaining)}.values())
        remaining = [spec for spec in remaining if spec not in turn]
        names = {spec.name: f"{spec.role} on {spec.host.name}" for spec in turn}
        notify(f"servers: measuring the {', the '.join(names.values())}")
        begun = announced = time.monotonic()
        with MeasuringProcesses(turn, logs, notify) as processes:
            while processes.running:
                processes.turn()
                waiting = [name for name in names if processes.report(name) is None and not processes.failure(name)]
                if not waiting:
                    break
                now = time.monotonic()
                if now - begun > config.MEASURE_START:
                    reason = f"has measured nothing within {config.MEASURE_START:.0f} s"
                    problems |= dict.fromkeys(waiting, reason)
                    break
                if now - announced > config.MEASURE_ANNOUNCE:
                    announced = now
                    measured = ", the ".join(map(names.__getitem__, waiting))
                    notify(f"servers: measuring the {measured} ({now - begun:.0f} s)")
            for name in names:
                report = processes.report(name)
                if report is not None:
                    reports[name] = report
                elif name not in problems:
                    problems[name] = processes.failure(name) or "has measured nothing"
    return reports, problems
