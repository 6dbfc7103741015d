"""Changes to a described cluster: a faster network, more or fewer devices, more servers."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import ValidationError

from .. import config
from ..launch.description import Description, ServerEntry, WorkerEntry
from ..launch.fields import DEVICE
from ..launch.simulation_schema import DeviceBehaviour, HostLink, NetworkSection
from ..launch.workers import device_folders
from ..launch.yaml_text import DescriptionError
from ..runtime.errors import enumeration, suggestion
from ..simulate.cluster import links
from .forecast import with_known_hosts

FORMS = "network=10Gbit, latency=5ms, without=HOST, without=HOST/DEVICE, add=gpu:0.03x2, servers=2 or per-host"
#: Changes that can be limited to one host.
_LINKS = ("network", "latency")
#: Devices to be added: kind, seconds of an iteration, number of them.
_ADDED = re.compile(r"([a-z]+[0-9]*):([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)(?:x([0-9]{1,9}))?")
#: The only change that needs no value: whether the workers of a host exchange as one.
PER_HOST = "per-host"


class WhatIfError(DescriptionError):
    """Raised when a change is invalid for a cluster; the message says what would be valid."""


@dataclass(frozen=True)
class Change:
    """A change, or several together.

    Attributes:
        text: the change as the user has written it.
        parts: keys and values, in order.
    """

    text: str
    parts: tuple[tuple[str, str], ...]

    @property
    def is_of_network(self) -> bool:
        """Whether it changes a bandwidth or a latency."""
        return any(key.partition(".")[0] in _LINKS for key, _ in self.parts)

    @property
    def per_host(self) -> bool | None:
        """Whether the workers of a host are to exchange as one; None if this change does not set it."""
        return dict(self.parts)[PER_HOST] == "true" if PER_HOST in dict(self.parts) else None

    @classmethod
    def parse(cls, text: str) -> "Change":
        """Parse KEY=VALUE, or several of them separated by commas.

        Raises:
            WhatIfError: the text is invalid.
        """
        parts = []
        for part in text.split(","):
            key, sign, value = map(str.strip, part.partition("="))
            if key == PER_HOST and not sign:
                value = "true"
            if not key or not value:
                raise WhatIfError(f"--what-if {text}: expected KEY=VALUE, one of {FORMS}")
            kind, dot, host = key.partition(".")
            if kind not in _CHANGES or (dot and not (host and kind in _LINKS)):
                raise WhatIfError(
                    f"--what-if {text}: there is no {key!r}{suggestion(kind, _CHANGES)}; expected one of {FORMS}"
                )
            parts.append((key, value))
        return cls(text, tuple(parts))


def changed(description: Description, change: Change) -> Description:
    """Return the description of the changed cluster.

    Raises:
        WhatIfError: the change makes no sense for it.
    """
    for key, value in change.parts:
        kind, _, host = key.partition(".")
        try:
            description = _CHANGES[kind](description, value, host)
            links(description)  # refuses impossible links
        except DescriptionError as error:
            raise WhatIfError(f"--what-if {change.text}: {error}") from None
    if change.per_host and len({worker.host for worker in description.workers}) == len(description.workers):
        raise WhatIfError(f"--what-if {change.text}: no host has two workers, so it changes nothing")
    return description


def _with_link(field: str, description: Description, value: str, host: str) -> Description:
    """Return a description with another bandwidth or latency of one host, or of all of them."""
    try:
        limit = getattr(NetworkSection.model_validate({field: value}), field)
    except ValidationError as error:
        raise WhatIfError(error.errors()[0]["msg"]) from None
    network, hosts = description.network, dict(description.network.hosts)
    update: dict[str, Any] = {}
    if host:
        known_hosts = description.link_names()
        if host not in known_hosts:
            raise WhatIfError(f"nothing runs on a host {host!r}{suggestion(host, known_hosts)}")
        entry = network.link_of(host) or HostLink()
        hosts[host] = entry.model_copy(update={field: limit})
    else:
        update[field] = limit
        hosts = {name: link.model_copy(update={field: None}) for name, link in hosts.items()}
    return description.model_copy(update={"network": network.model_copy(update={**update, "hosts": hosts})})


def _without(description: Description, value: str, _: str) -> Description:
    """Return a description without a device, or without all devices of a host."""
    workers = description.workers
    names = [f"{worker.host}/{folder}" for worker, folder in zip(workers, device_folders(workers), strict=True)]
    removed = {rank for rank, name in enumerate(names) if value == name}
    removed = removed or {rank for rank, worker in enumerate(workers) if value == worker.host}
    removed = removed or {
        rank for rank, worker in enumerate(workers) if re.fullmatch(rf"{re.escape(value)}-[0-9]+", worker.host)
    }
    if not removed:
        hosts = [worker.host for worker in workers]
        raise WhatIfError(
            f"no worker is called {value!r}{suggestion(value, [*names, *hosts])}; expected a host or "
            f"HOST/DEVICE; there are {enumeration(names, 8)}"
        )
    rest = [worker for rank, worker in enumerate(workers) if rank not in removed]
    if not rest:
        raise WhatIfError("no worker would be left; leave some of them in")
    return with_known_hosts(description.model_copy(update={"workers": rest}))


def _add(description: Description, value: str, _: str) -> Description:
    """Return a description with additional devices, each on a new host."""
    match = _ADDED.fullmatch(value)
    step_time = float(match[2]) if match else 0.0
    device = match[1] if match and match[1] != "gpu" else "gpu0"
    if match is None or not DEVICE.fullmatch(device) or not 0 < step_time < math.inf or match[3] == "0":
        raise WhatIfError("expected DEVICE:SECONDSxCOUNT, for instance add=gpu:0.03x2 or add=cpu:3.5")
    count, maximum = int(match[3] or 1), config.MAX_WORKERS
    if len(description.workers) + count > maximum:
        raise WhatIfError(f"a job has up to {maximum} workers, and {len(description.workers)} are there already")
    hosts = _new_names("added", count, set(description.host_names()))
    behaviour = DeviceBehaviour(step_time=step_time)
    new = [WorkerEntry(host=host, device=device, step_time=None, threads=None, simulate=behaviour) for host in hosts]
    return description.model_copy(update={"workers": [*description.workers, *new]})


def _servers(description: Description, value: str, _: str) -> Description:
    """Return a description with the given number of servers; added ones run on new hosts."""
    if not re.fullmatch("[0-9]{1,9}", value) or not 1 <= int(value) <= config.MAX_WORKERS:
        raise WhatIfError(f"expected the number of servers in all, up to {config.MAX_WORKERS}, for instance servers=2")
    servers, count = description.servers, int(value)
    hosts = _new_names("added-server", max(0, count - len(servers)), set(description.host_names()))
    new = [ServerEntry(host=host, simulate=servers[0].simulate) for host in hosts]
    return with_known_hosts(description.model_copy(update={"servers": [*servers[:count], *new]}))


def _per_host(description: Description, value: str, _: str) -> Description:
    """Check the value; return the description unchanged, because `candidates` applies the change."""
    if value not in ("true", "false"):
        raise WhatIfError(f"{PER_HOST}={value}: expected {PER_HOST}, {PER_HOST}=true or {PER_HOST}=false")
    return description


_CHANGES: dict[str, Callable[[Description, str, str], Description]] = {
    "network": partial(_with_link, "bandwidth"),
    "latency": partial(_with_link, "latency"),
    "without": _without,
    "add": _add,
    "servers": _servers,
    PER_HOST: _per_host,
}


def _new_names(stem: str, count: int, used: set[str]) -> list[str]:
    """Return names of new hosts."""
    while any(name.startswith(stem) for name in used):
        stem = f"{stem}-too"
    return [f"{stem}-{number}" for number in range(count)]
