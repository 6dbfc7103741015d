"""Functions that a user names: `package.module:function` or `file.py:function`.

Where a function is only named, planned or compared, its source is read, but not run, so that a
launcher or a server needs neither MXNet nor anything else that the file imports. It is imported
where it is called.
"""

import ast
import functools
import importlib.util
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from . import user_code
from .errors import suggestion
from .user_code import MissingUserCodeError, UserCodeError, digest_of_files, readable_errors

#: The forms of a function's name, for messages.
FORMS = "package.module:function or file.py:function"


def check(text: str) -> None:
    """Check that a function exists, without running anything of the user's.

    Raises:
        MissingUserCodeError: there is no such module or file on this machine.
        UserCodeError: the text has another form, or the source is not Python or lacks the name.
    """
    file, path = _find(text)
    if file is None:  # compiled, or a folder without __init__.py: only an import can tell
        return
    with readable_errors(f"{text} cannot be imported"):
        tree = ast.parse(file.read_bytes(), str(file))
    names = set(_names(tree.body))
    first = path.partition(".")[0]
    if first not in names and not names & {"*", "__getattr__"}:
        functions = [each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
        raise _no_function(text, path, [function for function in functions if not function.startswith("_")])


def digest(text: str) -> str:
    """Return 12 hexadecimal digits of the SHA-256 of a function's file; "" if there is no file.

    It does not cover other files that the file imports. In a process that has loaded the function,
    it is the digest of the source that was loaded.
    """
    file, _ = _find(text)
    return _digest_of(file) if file is not None else ""


@functools.cache
def _digest_of(file: Path) -> str:
    return digest_of_files([file])


def load(text: str) -> Callable[..., Any]:
    """Import a function, a class, or another callable.

    Raises:
        UserCodeError: it does not exist, or cannot be imported.
    """
    digest(text)  # it may change while this process runs
    place, path = user_code.split(text, FORMS, "function")
    module = user_code.import_named(text, place)
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            own = [name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__]
            raise _no_function(text, path, [name for name in own if not name.startswith("_")])
        found = getattr(found, part)
    if not callable(found):
        raise UserCodeError(f"{text}: it is {_kind(found)}; name a function that makes it")
    return found


def call(text: str, offered: dict[str, Any], needed: Iterable[str] = ()) -> Any:
    """Call a function with those of the offered arguments that it takes by name.

    Args:
        text: the function's name.
        offered: arguments by their names.
        needed: names of the arguments that a function with `**kwargs` gets, too.

    Returns:
        The function's result.

    Raises:
        UserCodeError: the function does not exist, needs other arguments, or raises an exception;
            the message names the line.
    """
    function = load(text)
    with readable_errors(f"{text} cannot be called"):
        parameters = inspect.signature(function).parameters
    several = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    named = {
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    given = {name: value for name, value in offered.items() if name in named or (several and name in set(needed))}
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and name not in given
    ]
    if missing:
        known = f"is given {', '.join(offered)}, as far as it takes them by these names" if offered else "is given none"
        raise UserCodeError(f"{text} asks for the argument{'s' * (len(missing) > 1)} {', '.join(missing)}, but {known}")
    with readable_errors(f"{text} has failed"):
        return function(**given)


def short_name(text: str) -> str:
    """Return a short name for folders and tables.

    `nets/small.py:build` and `my.small:build` become small.build; other names stay as they are.
    """
    place, _, path = text.rpartition(":")
    if not place:
        return text
    module = Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]
    return re.sub(r"[^\w.-]", "_", f"{module}.{path}").lstrip(".-")


def _find(text: str) -> tuple[Path | None, str]:
    """Return the file of a function's source, or None if that is not Python, and its name there."""
    place, path = user_code.split(text, FORMS, "function")
    return (user_code.find_file(text, place) if place.endswith(".py") else _find_module(text, place)), path


def _find_module(text: str, name: str) -> Path | None:
    """Return the file of a module, or None if that is not Python, without importing its package."""
    user_code.make_importable(os.getcwd())
    first, *others = name.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except ValueError:  # of a module without a specification, such as __main__
        spec = None
    found = first
    for part in others:
        if spec is None or spec.submodule_search_locations is None:
            break
        found = f"{found}.{part}"
        spec = PathFinder.find_spec(found, list(spec.submodule_search_locations))
    if spec is None or found != name:
        raise user_code.no_module(text, found if spec is None else f"{found}.{name[len(found) + 1 :].split('.')[0]}")
    return Path(spec.origin).resolve() if spec.origin and spec.origin.endswith(".py") else None


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements define; "*" if they import all names of another module."""
    for each in body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each.name
            continue
        for node in ast.walk(each):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield node.name
            elif isinstance(node, ast.alias):
                yield (node.asname or node.name).partition(".")[0]


def _no_function(text: str, path: str, known: list[str]) -> UserCodeError:
    there = f"there are {', '.join(known)}" if known else "there is none at all"
    return UserCodeError(f"{text}: there is no function {path}{suggestion(path, known, most=1)}; {there}")


def _kind(value: object) -> str:
    return f"an object of class {type(value).__name__}"


__all__ = ["FORMS", "MissingUserCodeError", "UserCodeError", "call", "check", "digest", "load", "short_name"]
