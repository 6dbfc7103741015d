"""Functions that a user names: `package.module:function` or `file.py:function`.

Unless a function is called, its source is only parsed, so that a launcher or a server needs neither
MXNet nor other imports of the file.
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
from .user_code import UserCodeError, digest_of_files, readable_errors

#: The forms of a function's name, for messages.
FORMS = "package.module:function or file.py:function"


def check(text: str) -> None:
    """Check that a function exists, without executing the user's code.

    Raises:
        MissingUserCodeError: the module or file does not exist on this machine.
        UserCodeError: the text has another form, or the source is not Python or lacks the name.
    """
    file, path = _find(text)
    if file is None:  # compiled, or a folder without __init__.py, which only an import can check
        return
    with readable_errors(f"{text} cannot be imported"):
        tree = ast.parse(file.read_bytes(), str(file))
    names = set(_names(tree.body))
    first = path.partition(".")[0]
    if first not in names and not names & {"*", "__getattr__"}:
        functions = [statement.name for statement in tree.body if isinstance(statement, ast.FunctionDef | ast.ClassDef)]
        raise _no_function(text, path, [function for function in functions if not function.startswith("_")])


def digest(text: str) -> str:
    """Return 12 hexadecimal digits of the SHA-256 of a function's file; "" if there is no file.

    It does not cover files that this file imports. In a process that has loaded the function, it is the
    digest of the loaded source.
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
    digest(text)  # remembered, because the file may change while this process runs
    source, path = user_code.split(text, FORMS, "function")
    module = user_code.import_named(text, source)
    value: Any = module
    for part in path.split("."):
        if not hasattr(value, part):
            names = [key for key, item in vars(module).items() if getattr(item, "__module__", "") == module.__name__]
            raise _no_function(text, path, [name for name in names if not name.startswith("_")])
        value = getattr(value, part)
    if not callable(value):
        raise UserCodeError(f"{text}: it is an object of class {type(value).__name__}; name a function that makes it")
    return value


def call(text: str, arguments: dict[str, Any], needed: Iterable[str] = ()) -> Any:
    """Call a function with those of the given arguments that it accepts by name.

    Args:
        text: the function's name.
        arguments: arguments by their names.
        needed: names of further arguments for a function with `**kwargs`.

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
    accepted = {
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    passed = {name: value for name, value in arguments.items() if name in accepted or (several and name in set(needed))}
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and name not in passed
    ]
    if missing:
        offer = (
            f"is given {', '.join(arguments)}, as far as it takes them by these names" if arguments else "is given none"
        )
        raise UserCodeError(f"{text} asks for the argument{'s' * (len(missing) > 1)} {', '.join(missing)}, but {offer}")
    with readable_errors(f"{text} has failed"):
        return function(**passed)


def short_name(text: str) -> str:
    """Return a short name for folders and tables.

    `nets/small.py:build` and `my.small:build` become small.build; other names stay as they are.
    """
    source, _, path = text.rpartition(":")
    if not source:
        return text
    module = Path(source).stem if source.endswith(".py") else source.rpartition(".")[2]
    return re.sub(r"[^\w.-]", "_", f"{module}.{path}").lstrip(".-")


def _find(text: str) -> tuple[Path | None, str]:
    """Return the file of a function's source (None if it is not Python), and its name in it."""
    source, path = user_code.split(text, FORMS, "function")
    return (user_code.find_file(text, source) if source.endswith(".py") else _find_module(text, source)), path


def _find_module(text: str, name: str) -> Path | None:
    """Return the file of a module (None if it is not Python), without importing its package."""
    user_code.make_importable(os.getcwd())
    first, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except ValueError:  # of a module without a specification, such as __main__
        spec = None
    package = first
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            break
        package = f"{package}.{part}"
        spec = PathFinder.find_spec(package, list(spec.submodule_search_locations))
    if spec is None or package != name:
        missing = package if spec is None else f"{package}.{name[len(package) + 1 :].split('.')[0]}"
        raise user_code.no_module(text, missing)
    return Path(spec.origin).resolve() if spec.origin and spec.origin.endswith(".py") else None


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements define; "*" if they import all names of another module."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield node.name
            elif isinstance(node, ast.alias):
                yield (node.asname or node.name).partition(".")[0]


def _no_function(text: str, path: str, existing: list[str]) -> UserCodeError:
    listing = f"there are {', '.join(existing)}" if existing else "there is none at all"
    return UserCodeError(f"{text}: there is no function {path}{suggestion(path, existing, limit=1)}; {listing}")
