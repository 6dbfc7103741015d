"""Find and replace a value in a description by its key path, such as workers.0.simulate.jitter.

Sections have fixed keys, which exist even where the file leaves them out. Lists have the entries of
the file; mappings, such as `network.hosts`, accept one more key.
"""

import copy
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from ..runtime.errors import suggestion
from .fields import Section
from .yaml_text import DescriptionError

#: The keys and indices on the way to a value.
KeyPath = list[str | int]


class UnknownKeyError(DescriptionError):
    """A description has no such key; the message says which keys it has."""


def find(content: Any, section: type[Section], place: str) -> KeyPath:
    """Return the keys and indices that lead to a value of a description.

    Keys of sections may be written with hyphens. Names of hosts are taken as they are, dots and
    hyphens included.

    Args:
        content: what the YAML file holds.
        section: what it describes.
        place: the key path: keys and indices, with dots in between.

    Raises:
        UnknownKeyError: there is no such key.
    """
    way: KeyPath = []
    here: Any = content
    kind: Any = section
    parts = place.split(".")
    while parts:
        origin = get_origin(kind)
        key: str | int
        if isinstance(kind, type) and issubclass(kind, Section):
            name = parts.pop(0)
            key = name if name in kind.model_fields else name.replace("-", "_")
            if key not in kind.model_fields:
                fields = f"it has {', '.join(kind.model_fields)}{suggestion(name, kind.model_fields)}"
                raise _missing(place, way, f"has no key {name!r}; {fields}")
            kind = _plain(kind.model_fields[key].annotation)
        elif origin is list or origin is tuple:
            length = len(here) if isinstance(here, list) else 0
            name = parts.pop(0)
            if not name.isdecimal() or int(name) >= length:
                there = f"has the entries 0 to {length - 1}" if length else "has no entries"
                raise _missing(place, way, f"{there}, not {name!r}")
            key, kind = int(name), _plain(get_args(kind)[0])
        elif origin is dict:
            known = [str(each) for each in here] if isinstance(here, Mapping) else []
            names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]  # a host's name may have dots
            key = next((each for each in names if each in known), parts[0])
            del parts[: key.count(".") + 1]
            kind = _plain(get_args(kind)[1])
        else:
            raise _missing(place, way, "is a single value")
        way.append(key)
        here = _child(here, key)
    return way


def put(content: Any, way: KeyPath, value: Any) -> Any:
    """Return the content with another value at a place; sections on the way there are made where there are none.

    What is given is not changed. Where an anchor makes two places of the file one, only the one
    that is named changes.
    """
    if not way:
        return value
    key, *rest = way
    changed = copy.copy(content) if content is not None else {}
    changed[key] = put(_child(content, key), rest, value)
    return changed


def _child(content: Any, key: str | int) -> Any:
    """Return the value of a key; None if the file has none."""
    if isinstance(content, Mapping):
        return content.get(key)
    return content[int(key)] if isinstance(content, list) else None


def _plain(annotation: Any) -> Any:
    """Return a type without its annotations, and without None as its alternative."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        annotation = next(each for each in get_args(annotation) if each is not type(None))
    return annotation


def _missing(place: str, way: KeyPath, reason: str) -> UnknownKeyError:
    at = ".".join(map(str, way)) or "a description"
    return UnknownKeyError(f"{place}: there is no such place in the description: {at} {reason}")
