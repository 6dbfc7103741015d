"""Description of a cluster: a YAML file, checked as a whole before anything starts.

Each error names the file, the line and the key, and says what would be valid there.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from .. import config
from ..arguments import presets
from ..runtime.straggler_injection import StragglerEvent
from . import flags, user_program
from .fields import LATENCIES, Device, HostName, KeyFile, Port, Section, Variables, Word, error, quantity, unknown
from .key_paths import put
from .simulation_schema import (
    NUMBERED,
    DeviceBehaviour,
    NetworkSection,
    Period,
    ServerCost,
    SimulationSection,
    StateServerCost,
)
from .yaml_text import DescriptionError, Location, dotted, load


class StragglerEntry(Period):
    """One or more periods in which this worker is slower.

    `delay` is in seconds per iteration or message; the other times are in seconds of the run.
    """

    kind: Literal["compute", "network"]
    delay: Annotated[float, quantity(LATENCIES, "30ms")]  # added to every iteration, or to every message to a server
    times: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _apart(self) -> "StragglerEntry":
        if (self.every is None) != (self.times == 1):
            raise error("a straggler several times needs both: every (seconds) and times", "times")
        return self


def straggler_events(section: Iterable[StragglerEntry]) -> tuple[StragglerEvent, ...]:
    """Return the straggler events of a section, one for each repetition of an entry."""
    return tuple(
        StragglerEvent(entry.kind, entry.delay, entry.at + number * (entry.every or 0.0), entry.lasting)
        for entry in section
        for number in range(entry.times)
    )


class HostEntry(Section):
    """How to reach a host.

    An entry that says how to log in is reached over ssh, and one with `srun` by Slurm's srun, even if
    its address is this machine's.
    """

    address: Word | None = None  # at which the other hosts reach it; None: its name
    user: Word | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None  # of its sshd
    key: KeyFile | None = None  # identity file on the launching machine
    ssh_options: list[str] = Field(default_factory=list)  # further words for ssh
    srun: list[str] | None = None  # options of srun, which reaches a node of this Slurm job in ssh's place
    workdir: Word | None = None  # None: the home directory; with srun this process's folder
    python: Word | None = None
    env: Variables = Field(default_factory=dict)  # environment of what runs there

    @property
    def by_ssh(self) -> bool:
        """Whether the entry says how to log in."""
        return bool(self.user or self.port or self.key or self.ssh_options)

    @model_validator(mode="after")
    def _one_way(self) -> "HostEntry":
        if self.srun is not None and self.by_ssh:
            raise error("srun needs no login; leave out one of the two", "srun")
        return self


class SchedulerEntry(Section):
    """Host and port of the scheduler."""

    host: HostName
    port: Port = 0


class ServerEntry(Section):
    """Host and device of a parameter server."""

    host: HostName
    device: Device = "cpu"  # sums the payloads
    simulate: ServerCost = Field(default_factory=ServerCost)


class StateServerEntry(Section):
    """Host and port of the state server."""

    host: HostName
    port: Port = 0
    simulate: StateServerCost = Field(default_factory=StateServerCost)


class WorkerEntry(Section):
    """A device that trains.

    With `count`, the entry stands for that many machines of one kind: HOST-0, HOST-1 and so on.
    """

    host: HostName
    device: Device
    count: int = Field(default=1, ge=1, le=config.MAX_WORKERS)
    step_time: float | None = Field(None, gt=0)  # seconds per iteration of the slower device that it emulates
    threads: int | None = Field(None, ge=1)  # for computations on the CPU
    straggle: list[StragglerEntry] = Field(default_factory=list)  # when it is slowed down on purpose
    simulate: DeviceBehaviour = Field(default_factory=DeviceBehaviour)

    @property
    def straggler_events(self) -> tuple[StragglerEvent, ...]:
        """Straggler events of this worker, in order."""
        return straggler_events(self.straggle)

    def machines(self) -> list["WorkerEntry"]:
        """Return one entry for each machine."""
        if self.count == 1:
            return [self]
        return [self.model_copy(update={"host": f"{self.host}-{number}", "count": 1}) for number in range(self.count)]


#: Error message for a value that is not a Boolean.
TRUE_OR_FALSE = "expected true or false"


def _train(section: object) -> dict[str, Any]:
    """Check every flag of the section `train` with the worker's own parser."""
    if not isinstance(section, dict):
        raise error("expected a mapping of the worker's flags, with underscores")
    try:
        flags.algorithm_of(section)  # loads an algorithm of another package, whose flags are known afterwards
    except flags.FlagError as problem:
        raise error(str(problem).removeprefix("mode: "), "mode") from None
    preset = presets.settings_of(section.get("preset"))
    if preset and "mode" in section and section["mode"] != preset["mode"]:
        raise error(f"preset {section['preset']} is of mode {preset['mode']}; leave one of the two out", "mode")
    checked = {}
    for key, value in section.items():
        if key not in flags.all_flags():
            if key in Description.model_fields:
                raise error("it belongs to the top level of the description, beside train", key)
            raise unknown(key, flags.all_flags())
        try:
            checked[key] = flags.check(key, value)
        except flags.FlagError as problem:
            raise error(str(problem), key) from None
    return checked


def _program(value: object) -> user_program.Words:
    """Return the words of a program's command."""
    try:
        return user_program.words_of(value)
    except ValueError as problem:
        raise error(str(problem)) from None


class Description(Section):
    """A cluster and what it trains.

    `hosts` maps the name of a host to its address and login; the name of any other host is its
    address. For instance, `hosts: {cloud1: {address: localhost}}` lets this machine stand for cloud1.
    """

    scheduler: SchedulerEntry
    servers: list[ServerEntry] = Field(min_length=1)
    state_server: StateServerEntry | None = None
    workers: list[WorkerEntry] = Field(min_length=1)
    hosts: dict[HostName, HostEntry] = Field(default_factory=dict)
    spare_hosts: list[HostName] = Field(default_factory=list)  # each takes over the workers of one lost host
    network: NetworkSection = Field(default_factory=NetworkSection)
    per_host: bool | None = None  # the workers of a host sum what they send, and exchange as one; None: with a preset
    batch_by_speed: bool | None = None  # batches follow the workers' speeds; None: if the preset says so
    preemption_notice: float | None = Field(None, gt=0)  # seconds from SIGTERM or SIGUSR1 to the end of launch
    simulate: SimulationSection = Field(default_factory=SimulationSection)
    train: Annotated[dict[str, Any], BeforeValidator(_train)] = Field(default_factory=dict)
    program: Annotated[tuple[str, ...], BeforeValidator(_program)] = ()  # replaces the built-in worker

    @field_validator("workers")
    @classmethod
    def _one_by_one(cls, workers: list[WorkerEntry]) -> list[WorkerEntry]:
        return [machine for worker in workers for machine in worker.machines()]

    @model_validator(mode="after")
    def _program_decides_on_training(self) -> "Description":
        for name in self.train if self.program else ():
            if not user_program.applies(name, self.train):
                raise error(user_program.up_to_the_program(name), ("train", name))
        if self.simulate.batch_size is not None and not self.program:
            raise error(
                "only a program needs it; the built-in worker's is train.batch_size", ("simulate", "batch_size")
            )
        return self

    @model_validator(mode="after")
    def _nothing_runs_on_spare_hosts(self) -> "Description":
        for index, name in enumerate(self.spare_hosts):
            if name in self.host_names():
                raise error(f"{name} has processes of its own; nothing may run on a spare host", "spare_hosts")
            if name in self.spare_hosts[:index]:
                raise error(f"{name} is there twice; a spare host takes the place of one host only", "spare_hosts")
        return self

    def host_names(self) -> list[str]:
        """Return the name of every host on which a process runs, without duplicates and spare hosts."""
        names = [self.scheduler.host, *(server.host for server in self.servers)]
        if self.state_server:
            names.append(self.state_server.host)
        return list(dict.fromkeys([*names, *(worker.host for worker in self.workers)]))

    def link_names(self) -> list[str]:
        """Return the names that entries of `network.hosts` may have: of hosts, and of entries with `count`."""
        names = self.host_names()
        return list(dict.fromkeys([*names, *(match[1] for name in names if (match := NUMBERED.fullmatch(name)))]))


@contextlib.contextmanager
def errors_of(file: Path) -> Iterator[None]:
    """Put the file in front of the errors of a description in a `with` block, but not of typed flags."""
    try:
        yield
    except flags.TypedFlagError:
        raise
    except DescriptionError as error:
        raise DescriptionError(f"{file}: {error}") from None


def read(path: Path, changes: Mapping[str, Any] | None = None, cluster: Mapping[str, Any] | None = None) -> Description:
    """Read and check a description.

    Args:
        path: the file.
        changes: key path, such as network.bandwidth or workers.0.step_time → value that overrides
            the one in the file.
        cluster: key → value of those that a Slurm job decides on, so that the file must not have them.

    Raises:
        DescriptionError: the file cannot be read, is not YAML, or does not describe a cluster.
    """
    content, lines = _load(path)
    if both := [name for name in cluster or {} if name in content]:
        raise DescriptionError(
            "\n".join(f"{path}:{lines[name,]}: {name}: leave it out; with --slurm the job decides" for name in both)
        )
    content |= cluster or {}
    for key_path, value in (changes or {}).items():
        content = put(content, key_path, value)
    try:
        return Description.model_validate(content)
    except ValidationError as wrong:
        problems = wrong.errors(include_url=False)
        raise DescriptionError("\n".join(_problem(path, lines, problem) for problem in problems)) from None


def load_content(path: Path) -> dict[str, Any]:
    """Return the content of a description's file, without defaults, to be changed and written again.

    Raises:
        DescriptionError: the file cannot be read.
    """
    return _load(path)[0]


def _load(path: Path) -> tuple[dict[str, Any], dict[Location, int]]:
    """Return the content of a description's file, and the line of each value in it."""
    content, lines = load(path)
    if not isinstance(content, dict):
        raise DescriptionError(f"{path}: expected a mapping with the keys {', '.join(Description.model_fields)}")
    return content, lines


def _problem(path: Path, lines: Mapping[Location, int], problem: Any) -> str:
    """Return one of pydantic's errors as a line of a message."""
    location = tuple(str(part) for part in problem["loc"])
    key = problem.get("ctx", {}).get("key")
    if key is not None:
        location = (*location, *(key if isinstance(key, tuple) else (str(key),)))
    inner = location
    while inner and inner not in lines:
        inner = inner[:-1]
    line = f":{lines[inner]}" if inner in lines else ""
    texts = {"missing": "it is missing", "bool_type": TRUE_OR_FALSE, "bool_parsing": TRUE_OR_FALSE}
    text = texts.get(problem["type"], problem["msg"])
    return f"{path}{line}: {dotted(location)}: {text}"
