"""YAML text with the line of every key, so that a mistake can be shown where it stands."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ..errors import ExpectedError

#: The keys and indices on the way to a value, as text.
Place = tuple[str, ...]


class _Loader(yaml.SafeLoader):
    """YAML 1.1 takes 1e-3 for text; people who write learning rates do not."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


class DescriptionError(ExpectedError):
    """The description cannot be used; every line of the message names the file, the line, the key and what is wrong."""


def value(text: str) -> Any:
    """The value that a text stands for in a description.

    Raises:
        DescriptionError: it is no YAML text.
    """
    try:
        return _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else error
        raise DescriptionError(f"{text!r}: no YAML text: {problem}") from None


def load(path: Path) -> tuple[Any, dict[Place, int]]:
    """The content of a file, and the line of each place in it."""
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        if root is None:
            return None, {}
        lines = dict(_places(path, root, (), set()))
        return loader.construct_document(root), lines
    except OSError as error:
        raise DescriptionError(f"{path}: {error.strerror or error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise DescriptionError(f"{path}{f':{mark.line + 1}' if mark else ''}: {error.problem or error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DescriptionError(f"{path}: no YAML text: {error}") from None


def _places(path: Path, node: yaml.Node, place: Place, seen: set[int]) -> Iterator[tuple[Place, int]]:
    """All places at and below a node with their lines; a key that stands twice is an error."""
    yield place, node.start_mark.line + 1
    if id(node) in seen:  # an alias that may lead back here
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _places(path, item, (*place, str(index)), seen)
    elif isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in keys:
                raise DescriptionError(f"{path}:{line}: {dotted((*place, name))}: this key stands there twice")
            keys.add(name)
            yield from _places(path, value, (*place, name), seen)
            yield (*place, name), line


def dotted(place: Place) -> str:
    """workers[2].device."""
    text = "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in place)
    return text.removeprefix(".")
