"""The description of a cluster: a YAML file, checked as a whole before anything is started.

Whatever is wrong is named by file, line and key, together with what would be right there.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from . import flags
from .folders import PROCESSES
from .yaml_text import DescriptionError, Place, dotted, load

#: A host's name is the name of a folder in the log tree too.
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
DEVICE = re.compile(r"cpu|gpu(0|[1-9][0-9]*)")
QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]+)")
#: Unit → bits per second.
BANDWIDTHS = {"bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9}
#: Unit → seconds.
LATENCIES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def _error(reason: str, key: object = None) -> PydanticCustomError:
    """What a check of this module raises; `key` is the one in the section under check that is wrong."""
    return PydanticCustomError("description", "{reason}", {"reason": reason, "key": key})


def _unknown(key: object, known: Mapping[str, Any]) -> PydanticCustomError:
    return _error(f"unknown key; known: {', '.join(known)}", key)


def _host(name: str) -> str:
    if not HOST_NAME.fullmatch(name):
        raise _error(f"{name!r} is no name of a host")
    if name == PROCESSES:
        raise _error(f"{name!r} is the folder of the processes' logs; choose another name")
    return name


def _device(name: str) -> str:
    if not DEVICE.fullmatch(name):
        raise _error(f"{name!r} is no device; expected cpu, gpu0, gpu1, …")
    return name


def _quantity(units: Mapping[str, float], example: str) -> BeforeValidator:
    """A number with its unit, as text, turned into a number of the basic unit."""

    def read(text: object) -> float:
        match = QUANTITY.fullmatch(text) if isinstance(text, str) else None
        if not match or match[2] not in units:
            names = ", ".join(units)
            raise _error(f"{text!r}: expected a number with one of the units {names}, for instance {example}")
        return float(match[1]) * units[match[2]]

    return BeforeValidator(read)


HostName = Annotated[str, AfterValidator(_host)]
Device = Annotated[str, AfterValidator(_device)]
Port = Annotated[int, Field(ge=0, le=65535)]  # 0: launch chooses a free one


class Section(BaseModel):
    """A mapping of the file; keys that it does not know are errors."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, content: object) -> object:
        if isinstance(content, dict):
            for key in content:
                if key not in cls.model_fields:
                    raise _unknown(key, cls.model_fields)
        return content


class HostEntry(Section):
    """How a host is reached."""

    address: str | None = Field(None, min_length=1)  # None: its name is its address


class Scheduler(Section):
    """Where ps-lite's scheduler runs."""

    host: HostName
    port: Port = 0


class Server(Section):
    """A parameter server."""

    host: HostName
    device: Device = "cpu"  # adds the payloads up


class StateServer(Section):
    """Where the state server runs."""

    host: HostName
    port: Port = 0


class Worker(Section):
    """A device that trains."""

    host: HostName
    device: Device
    step_time: float | None = Field(None, gt=0)  # seconds of one iteration, where it stands for a slower device
    threads: int | None = Field(None, ge=1)  # of its computations on the CPU


class Network(Section):
    """The network that `simulate` models."""

    bandwidth: Annotated[float | None, _quantity(BANDWIDTHS, "1Gbit")] = None  # bits per second
    latency: Annotated[float | None, _quantity(LATENCIES, "0.2ms")] = None  # seconds


def _train(section: object) -> dict[str, Any]:
    """Check every flag with the worker's own parser."""
    if not isinstance(section, dict):
        raise _error("expected a mapping of the worker's flags, with underscores")
    checked = {}
    for key, value in section.items():
        if key not in flags.DEFAULTS:
            raise _unknown(key, flags.DEFAULTS)
        try:
            checked[key] = flags.check(key, value)
        except flags.FlagError as error:
            raise _error(str(error), key) from None
    return checked


class Description(Section):
    """A cluster and what it trains.

    `hosts` may give a host an address; a host that is not among them is its own address. So `hosts: {cloud1: {address:
    localhost}}` has this machine stand for cloud1.
    """

    scheduler: Scheduler
    servers: list[Server] = Field(min_length=1)
    state_server: StateServer | None = None
    workers: list[Worker] = Field(min_length=1)
    hosts: dict[HostName, HostEntry] = {}
    network: Network | None = None
    train: Annotated[dict[str, Any], BeforeValidator(_train)] = {}

    def host_names(self) -> list[str]:
        """Every host that something runs on, once."""
        names = [self.scheduler.host, *(server.host for server in self.servers)]
        if self.state_server:
            names.append(self.state_server.host)
        return list(dict.fromkeys([*names, *(worker.host for worker in self.workers)]))


def read(path: Path) -> Description:
    """Read a description.

    Raises:
        DescriptionError: the file cannot be read, is no YAML, or describes no cluster.
    """
    content, lines = load(path)
    if not isinstance(content, dict):
        raise DescriptionError(f"{path}: expected a mapping with the keys {', '.join(Description.model_fields)}")
    try:
        return Description.model_validate(content)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise DescriptionError("\n".join(_problem(path, lines, problem) for problem in problems)) from None


def _problem(path: Path, lines: Mapping[Place, int], problem: Any) -> str:
    """One line about one error of pydantic's."""
    place = tuple(str(part) for part in problem["loc"])
    key = problem.get("ctx", {}).get("key")
    if key is not None:
        place = (*place, str(key))
    inner = place
    while inner and inner not in lines:
        inner = inner[:-1]
    line = f":{lines[inner]}" if inner in lines else ""
    text = "it is missing" if problem["type"] == "missing" else problem["msg"]
    return f"{path}{line}: {dotted(place)}: {text}"
