"""Sections of a description for `simulate`: devices, costs of servers, the network.

`launch` ignores them, so that one description serves both.


"""

import re
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from .. import config
from .fields import BANDWIDTHS, LATENCIES, HostName, Section, error, quantity

#: Unit → bytes per second.
SPEEDS = {"MB": 1e6, "GB": 1e9}
#: Unit → bytes.
SIZES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}

#: Name of a host of an entry with `count`: HOST-0, HOST-1 …
NUMBERED = re.compile(r"(.+)-[0-9]+")

#: Distribution of jitter → the largest standard deviation with which iterations take time, and their mean
#: stays; lognormal takes any.
LARGEST_JITTERS = {"normal": 0.4, "uniform": 0.5, "exponential": 0.9}


class ServerCost(Section):
    """Costs of a parameter server."""

    message_time: float = Field(default=config.SIMULATE_MESSAGE_TIME, ge=0)  # seconds for every message
    # bytes per second that it sums
    throughput: Annotated[float | None, quantity(SPEEDS, "2GB", positive=True)] = None


class StateServerCost(Section):
    """Costs of the state server."""

    answer_time: float = Field(default=config.SIMULATE_ANSWER_TIME, ge=0)  # seconds for every call


class Period(Section):
    """A period, or one that comes again and again; all times in seconds of the run."""

    at: float = Field(ge=0)
    lasting: float = Field(gt=0)
    every: float | None = Field(default=None, gt=0)  # seconds from one beginning to the next; None: it happens once

    @model_validator(mode="after")
    def _over_before_the_next(self) -> "Period":
        if self.every is not None and self.every <= self.lasting:
            raise error("it should be over before it begins again", "every")
        return self


class CrashEntry(Section):
    """A crash of the worker's machine; all times in seconds of virtual time."""

    at: float = Field(ge=0)
    restart_after: float = Field(gt=0)  # seconds until a replacement takes over its slot


class DeviceBehaviour(Section):
    """How fast a device computes, and when it pauses or crashes."""

    step_time: float | None = Field(default=None, gt=0)  # seconds per iteration; None: the emulated step_time
    # seconds of an iteration that do not depend on its batch size; None: all of them do, proportionally
    fixed_time: float | None = Field(default=None, ge=0)
    jitter: float = Field(default=0.0, ge=0)  # relative standard deviation of an iteration
    distribution: Literal["normal", "lognormal", "uniform", "exponential"] = "normal"
    # pairs [second, speed]: relative speed from that second on; it is 1 before the first
    speed: list[tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(gt=0)]]] = Field(default_factory=list)
    pauses: list[Period] = Field(default_factory=list)
    # file iter-N.txt or a folder of them, relative to the description's folder
    trace: str | None = Field(default=None, min_length=1)
    crashes: list[CrashEntry] = Field(default_factory=list)  # in any order

    @field_validator("speed", mode="before")
    @classmethod
    def _pairs(cls, value: object) -> object:
        return [tuple(pair) if isinstance(pair, list) else pair for pair in value] if isinstance(value, list) else value

    @model_validator(mode="after")
    def _in_order(self) -> "DeviceBehaviour":
        if self.jitter > (largest := LARGEST_JITTERS.get(self.distribution, self.jitter)):
            raise error(f"{self.distribution} jitter is {largest:g} at most; lognormal takes any", "jitter")
        if [start for start, _ in self.speed] != sorted(start for start, _ in self.speed):
            raise error("the seconds should ascend", "speed")
        crashes = sorted(self.crashes, key=lambda crash: crash.at)
        for before, after in pairwise(crashes):
            if after.at < (back := before.at + before.restart_after):
                raise error(
                    f"at {after.at:g} there is nobody to crash: the worker that crashes at {before.at:g} is replaced "
                    f"at {back:g}",
                    "crashes",
                )
        return self


class HostLink(Section):
    """Link of one host to the network."""

    bandwidth: Annotated[float | None, quantity(BANDWIDTHS, "20Mbit", positive=True)] = None  # bits per second
    latency: Annotated[float | None, quantity(LATENCIES, "30ms")] = None  # seconds to a host without an entry


class NetworkSection(Section):
    """The network between the hosts."""

    bandwidth: Annotated[float | None, quantity(BANDWIDTHS, "1Gbit", positive=True)] = None  # bits per second
    latency: Annotated[float | None, quantity(LATENCIES, "0.2ms")] = None  # seconds
    # hosts with other links; HOST also stands for HOST-0, HOST-1 …
    hosts: dict[HostName, HostLink] = Field(default_factory=dict)

    def link_of(self, host: str) -> HostLink | None:
        """Return the entry of a host, or of those with its name and a number; None if there is none."""
        numbered = NUMBERED.fullmatch(host)
        return self.hosts.get(host) or (self.hosts.get(numbered[1]) if numbered else None)


class SimulationSection(Section):
    """Costs of everything else in a simulation."""

    evaluation_time: float = Field(default=config.SIMULATE_EVALUATION_TIME, gt=0)  # seconds of one evaluation
    # bytes per second that a worker copies or sums in a host group
    memory_bandwidth: Annotated[float, quantity(SPEEDS, "10GB", positive=True)] = config.SIMULATE_MEMORY_BANDWIDTH
    # bytes of the exchanged values as float32, also where a smaller network trains; None: those of the network
    model_bytes: Annotated[float | None, quantity(SIZES, "44.7MB", positive=True)] = None
    batch_size: int | None = Field(default=None, ge=1)  # samples of one iteration of a `program`
