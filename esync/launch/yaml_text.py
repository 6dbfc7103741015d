"""Read YAML with the line of every key, so that errors can name it."""

import re
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ..runtime.errors import ExpectedError

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80
_REPR.maxlevel, _REPR.maxlist, _REPR.maxdict = 2, 6, 4
#: The keys and indices on the way to a value, as text.
Location = tuple[str, ...]


class _Loader(yaml.SafeLoader):
    """A loader that reads 1e-3 as a number, which YAML 1.1 reads as text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


class DescriptionError(ExpectedError):
    """Raised when a description cannot be used.

    Every line of the message names the file, the line and the key, and says what is wrong.
    """

    exit_code = 2


def value(text: str) -> Any:
    """Return the value of a text in a description.

    Raises:
        DescriptionError: the text is not YAML.
    """
    try:
        return _parse(text, shown(text))[0]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else error
        raise DescriptionError(f"{shown(text)}: not valid YAML: {problem}") from None


def load(path: Path) -> tuple[Any, dict[Location, int]]:
    """Return the content of a file, and the line of each value in it.

    Raises:
        DescriptionError: the file cannot be read, or is not YAML.
    """
    try:
        return _parse(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise DescriptionError(f"{path}: {error.strerror or error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise DescriptionError(f"{path}{f':{mark.line + 1}' if mark else ''}: {error.problem or error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DescriptionError(f"{path}: not valid YAML: {error}") from None


def _parse(text: str, origin: Path | str) -> tuple[Any, dict[Location, int]]:
    """Return the content of a text, and the line of each value in it."""
    loader = _Loader(text)
    root = loader.get_single_node()
    if root is None:
        return None, {}
    lines = dict(_locations(origin, root, (), set()))
    return loader.construct_document(root), lines


def _locations(path: Path | str, node: yaml.Node, location: Location, seen: set[int]) -> Iterator[tuple[Location, int]]:
    """Yield the locations of a node and its descendants with their lines; refuse duplicate keys."""
    yield location, node.start_mark.line + 1
    if id(node) in seen:  # an alias, which may be recursive
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _locations(path, item, (*location, str(index)), seen)
    elif isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in keys:
                raise DescriptionError(f"{path}:{line}: {dotted((*location, name))}: this key occurs twice")
            keys.add(name)
            yield from _locations(path, value, (*location, name), seen)
            yield (*location, name), line


def shown(value: object) -> str:
    """Return a value for an error message: as Python writes it, with long ones abridged."""
    return _REPR.repr(value)


def dotted(location: Location) -> str:
    """Return a location as text, such as workers[2].device."""
    text = "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in location)
    return text.removeprefix(".")
