"""Find the bottleneck of a simulated run, and a remedy.

The cause is the largest part of the time in which the fastest device does not compute. If the device
waits for the others, the last of them is examined in the same way: it either computes (so it is the
slowest device) or exchanges. If the cause is the exchange, the bottleneck is the most loaded port or
processor; if none is busy during exchanges, it is their latency.
"""

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import config
from ..simulate.network import Link


class Cause(enum.Enum):
    """Kind of a bottleneck."""

    DEVICES = "the devices"
    SLOWEST = "slowest device"
    SERVER_PORT = "server's port"
    WORKER_PORT = "worker's port"
    SERVER = "server's processor"
    STATE_SERVER = "state server"
    LATENCY = "latency"


#: Cause → remedy; {where} is the device or the host.
REMEDIES = {
    Cause.DEVICES: "more or faster devices; exchanges cost next to nothing here",
    Cause.SLOWEST: "leaving {where} out, a faster device in its place, or a mode that does not wait for it",
    Cause.SERVER_PORT: "a faster network at {where}, another server on a host of its own, smaller messages "
    "(--compression fp16), or a collective in the server's place",
    Cause.WORKER_PORT: "a faster network at {where}, or smaller messages (--compression fp16)",
    Cause.SERVER: "another server on a host of its own, or a faster host than {where}",
    Cause.STATE_SERVER: "a state server on a faster host than {where}, or nearer to the workers",
    Cause.LATENCY: "shorter round trips, or more local iterations between exchanges",
}


@dataclass(frozen=True)
class Bottleneck:
    """The bottleneck of a run.

    Attributes:
        cause: its kind.
        where: the device or host; "" for none in particular.
        share: share of the fastest device's time that it costs; for `Cause.DEVICES`, the share in
            which the devices compute.
    """

    cause: Cause
    where: str
    share: float

    @property
    def remedy(self) -> str:
        """How to remove the bottleneck, in words."""
        return REMEDIES[self.cause].format(where=self.where)


def bottleneck(result: Mapping[str, Any], link: Callable[[str], Link], state_server: str) -> Bottleneck:
    """Return the bottleneck of a run.

    Args:
        result: the steady part of its result; see `steady.between`.
        link: returns a host's link to the network.
        state_server: host of the state server.
    """
    devices = result["devices"]
    if result["efficiency"] >= config.PLAN_BUSY:
        return Bottleneck(Cause.DEVICES, "", result["efficiency"])
    fastest = min(devices, key=lambda device: device["step_time"])
    parts = {"wait": fastest["wait"], "exchange": fastest["transfer"], "questions": fastest["questions"]}
    largest = max(parts, key=lambda name: parts[name])
    idle = max(0.0, 1 - fastest["computing"] / result["seconds"])  # it may also compute during an exchange
    share = idle * parts[largest] / (sum(parts.values()) or 1.0)
    if largest == "questions":
        return Bottleneck(Cause.STATE_SERVER, state_server, share)
    if largest == "exchange":
        return Bottleneck(*_exchange(result, fastest, link), share)
    last = min(devices, key=lambda device: (device["wait"], -device["step_time"]))
    if last["computing"] >= last["transfer"]:
        return Bottleneck(Cause.SLOWEST, f"{last['host']}/{last['device']}", share)
    return Bottleneck(*_exchange(result, last, link), share)


def port_loads(result: Mapping[str, Any], link: Callable[[str], Link]) -> dict[str, float]:
    """Return the share of the time in which each host's port is busy, in its busier direction."""
    return {
        host: max(way.values()) / link(host).bandwidth / result["seconds"] for host, way in result["traffic"].items()
    }


def _exchange(result: Mapping[str, Any], device: Mapping[str, Any], link: Callable[[str], Link]) -> tuple[Cause, str]:
    """Return the cause of the length of a device's exchanges, and its location."""
    servers = result["servers"]
    loads = [
        (load, Cause.SERVER_PORT if host in servers else Cause.WORKER_PORT, host)
        for host, load in port_loads(result, link).items()
    ]
    for host, seconds in zip(servers, result["server_seconds"], strict=True):
        loads.append((seconds / result["seconds"], Cause.SERVER, host))
    load, cause, host = max(loads, key=lambda item: item[0], default=(0.0, Cause.LATENCY, ""))
    # Where a port is the limit, each direction is busy for half of an exchange.
    if load < device["transfer"] / result["seconds"] / 4:
        return Cause.LATENCY, ""
    return cause, host


def busiest_traffic(result: Mapping[str, Any]) -> float:
    """Return the bytes per second of the busiest port, in its busier direction."""
    busiest = max((max(way.values()) for way in result["traffic"].values()), default=0.0)
    return busiest / result["seconds"] if result["seconds"] else math.nan
