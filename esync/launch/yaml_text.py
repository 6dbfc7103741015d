"""Read YAML with the line of every key, so that errors can name it."""

import re
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ..runtime.errors import ExpectedError

#: NUL and lone UTF-16 surrogates, which an escape can put into a text.
NO_TEXT = re.compile("[\0\ud800-\udfff]")
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80
_REPR.maxlevel, _REPR.maxlist, _REPR.maxdict = 2, 6, 4
#: The keys and indices on the way to a value, as text.
Place = tuple[str, ...]


class _Loader(yaml.SafeLoader):
    """A loader that reads 1e-3 as a number, as people who write learning rates mean it.

    YAML 1.1 takes it for text.
    """


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


class DescriptionError(ExpectedError):
    """Raised when a description cannot be used.

    Every line of the message names the file, the line and the key, and says what is wrong.
    """

    exit_code = 2


def value(text: str) -> Any:
    """Return the value that a text has in a description.

    Raises:
        DescriptionError: the text is not YAML.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        dict(_places(shown(text), root, (), set()))
        return loader.construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else error
        raise DescriptionError(f"{shown(text)}: not valid YAML: {problem}") from None


def load(path: Path) -> tuple[Any, dict[Place, int]]:
    """Return the content of a file, and the line of each value in it.

    Raises:
        DescriptionError: the file cannot be read, or is not YAML.
    """
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
        raise DescriptionError(f"{path}: not valid YAML: {error}") from None


def _check_text(path: Path | str, node: yaml.Node, place: Place) -> None:
    """Refuse characters that no file name, variable or word of a command line can hold."""
    if isinstance(node, yaml.ScalarNode) and (wrong := NO_TEXT.search(node.value)):
        where = dotted(place).encode(errors="backslashreplace").decode().replace("\0", r"\x00")
        raise DescriptionError(
            f"{path}:{node.start_mark.line + 1}: {where}: {shown(node.value)} holds {wrong[0]!r}, which is invalid"
        )


def _places(path: Path | str, node: yaml.Node, place: Place, seen: set[int]) -> Iterator[tuple[Place, int]]:
    """Yield all places at and below a node with their lines, and refuse duplicate keys."""
    yield place, node.start_mark.line + 1
    _check_text(path, node, place)
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
            _check_text(path, key, (*place, name))
            if name in keys:
                raise DescriptionError(f"{path}:{line}: {dotted((*place, name))}: this key occurs twice")
            keys.add(name)
            yield from _places(path, value, (*place, name), seen)
            yield (*place, name), line


def shown(value: object) -> str:
    """Return a value for an error message: as Python writes it, with long ones abridged."""
    return _REPR.repr(value)


def dotted(place: Place) -> str:
    """Return a place as text, such as workers[2].device."""
    text = "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in place)
    return text.removeprefix(".")
