"""Find and replace a value in a description by its key path, such as workers.0.simulate.jitter.

Sections have fixed keys, which can be set even where the file leaves them out. Entries of a list
can be set only if the file has them. Mappings, such as `network.hosts`, accept new keys.
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
    """Raised when a key does not exist in a description; the message lists the valid ones."""


def find(content: Any, section: type[Section], key_path: str) -> KeyPath:
    """Return the keys and indices that lead to a value of a description.

    Keys of sections may be written with hyphens instead of underscores. Names of hosts may contain
    dots and hyphens.

    Args:
        content: content of the YAML file.
        section: type of the section that it describes.
        key_path: keys and indices, separated by dots.

    Raises:
        UnknownKeyError: the key does not exist.
    """
    path: KeyPath = []
    value: Any = content
    kind: Any = section
    parts = key_path.split(".")
    while parts:
        origin = get_origin(kind)
        key: str | int
        if isinstance(kind, type) and issubclass(kind, Section):
            name = parts.pop(0)
            key = name if name in kind.model_fields else name.replace("-", "_")
            if key not in kind.model_fields:
                fields = f"it has {', '.join(kind.model_fields)}{suggestion(name, kind.model_fields)}"
                raise _missing(key_path, path, f"has no key {name!r}; {fields}")
            kind = _plain(kind.model_fields[key].annotation)
        elif origin is list or origin is tuple:
            length = len(value) if isinstance(value, list) else 0
            name = parts.pop(0)
            if not name.isdecimal() or int(name) >= length:
                extent = f"has the entries 0 to {length - 1}" if length else "has no entries"
                raise _missing(key_path, path, f"{extent}, not {name!r}")
            key, kind = int(name), _plain(get_args(kind)[0])
        elif origin is dict:
            existing = [str(name) for name in value] if isinstance(value, Mapping) else []
            names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]  # a host's name may have dots
            key = next((candidate for candidate in names if candidate in existing), parts[0])
            del parts[: key.count(".") + 1]
            kind = _plain(get_args(kind)[1])
        else:
            raise _missing(key_path, path, "is a single value")
        path.append(key)
        value = _child(value, key)
    return path


def put(content: Any, path: KeyPath, value: Any) -> Any:
    """Return a copy of the content with another value at a path.

    Missing sections on the path are created. The original content is not changed. If a YAML alias
    puts the same value at several paths, only the named one changes.
    """
    if not path:
        return value
    key, *rest = path
    changed = copy.copy(content) if content is not None else {}
    changed[key] = put(_child(content, key), rest, value)
    return changed


def _child(content: Any, key: str | int) -> Any:
    """Return the value of a key, or None if the file does not have it."""
    if isinstance(content, Mapping):
        return content.get(key)
    return content[int(key)] if isinstance(content, list) else None


def _plain(annotation: Any) -> Any:
    """Return a type without its annotations, and without None as an alternative to it."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        annotation = next(argument for argument in get_args(annotation) if argument is not type(None))
    return annotation


def _missing(key_path: str, path: KeyPath, reason: str) -> UnknownKeyError:
    section = ".".join(map(str, path)) or "a description"
    return UnknownKeyError(f"{key_path}: there is no such place in the description: {section} {reason}")
