"""Hostfiles of MPI and Horovod: a host in each line, and how many processes it has room for."""

import re
from collections.abc import Mapping
from pathlib import Path

from ..runtime.errors import ExpectedError
from .fields import HOST_NAME

#: Key of Open MPI → whether it says how many processes; the others are of no meaning here.
KEYS = {"slots": True, "max_slots": False, "max-slots": False}
#: Largest number of processes of a host, and longest file, in lines.
MAX_SLOTS = 1000


class HostfileError(ExpectedError):
    """Raised when a hostfile cannot be understood; the message names file and line."""

    exit_code = 2


def read(path: Path) -> Mapping[str, int]:
    """Return the hosts of a hostfile in order, and the number of slots of each.

    The lines of Open MPI and Horovod are `host`, `host slots=4` or `host slots=4 max_slots=8`, those
    of MPICH `host` or `host:4`. A host without a number has one slot; the slots of a host in several
    lines are added up. What is behind # is a comment.

    Raises:
        HostfileError: the file cannot be read, has no host, or has something else in a line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HostfileError(f"{path}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    hosts: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if words := line.partition("#")[0].split():
            try:
                name, slots = _host(words)
            except ValueError as error:
                raise HostfileError(f"{path}:{number}: {error}") from None
            hosts[name] = hosts.get(name, 0) + slots
    if not hosts:
        raise HostfileError(f"{path}: it names no host")
    return hosts


def _host(words: list[str]) -> tuple[str, int]:
    """Return the host of a line, and its slots."""
    name, colon, count = words[0].partition(":")
    if not HOST_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a host name")
    counts = [_slots(count)] if colon else []
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or key not in KEYS:
            raise ValueError(f"{word!r} is not understood; expected {name}, {name}:4, or {name} slots=4 max_slots=8")
        slots = _slots(value)
        if KEYS[key]:
            counts.append(slots)
    if len(counts) > 1:
        raise ValueError(f"the slots of {name} are there twice")
    return name, counts[0] if counts else 1


def _slots(text: str) -> int:
    if not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= MAX_SLOTS:
        raise ValueError(f"{text!r} is not a number of slots from 1 to {MAX_SLOTS}")
    return int(text)
