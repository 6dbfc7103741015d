"""Algorithms from outside this package: `package.module:Class`, `file.py:Class`, and entry points.

Whoever names a class has its module imported, so only the command line, a description of a cluster
and Python code may: nothing that is read from run.json, a checkpoint, a journal or a message comes
here. Entry points of the group `esync.algorithms` make an installed package's algorithm a mode by
its name, and are imported only when they are chosen:

    [project.entry-points."esync.algorithms"]
    feddyn = "feddyn.algorithm:FedDyn"
"""

import contextlib
import functools
import inspect
import logging
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from ..runtime import user_code
from ..runtime.errors import suggestion
from ..runtime.user_code import MissingUserCodeError, UserCodeError, digest_of_files, file_of, top
from .base import Algorithm
from .registry import ALGORITHMS, register

log = logging.getLogger(__name__)

#: The group of the entry points that are modes.
GROUP = "esync.algorithms"
#: The forms in which a class outside this package is named.
FORMS = "package.module:Class or file.py:Class"

_PACKAGE = __name__.partition(".")[0]
#: Top-level modules whose sources are no part of a digest, beside the standard library's.
_NOT_DIGESTED = {_PACKAGE, "pydantic"}
#: Top-level modules that need not be there where an algorithm is only named, planned or summarized.
_ENGINE = ("mxnet", "gluoncv")

#: Class → the text that named it.
_sources: dict[type[Algorithm], str] = {}


class AlgorithmError(UserCodeError):
    """There is no such algorithm, or it cannot be used; the message says why, and what to do."""


class MissingAlgorithmError(AlgorithmError, MissingUserCodeError):
    """There is no such file, module or name on this machine."""


def find(text: str) -> type[Algorithm]:
    """Find an algorithm by its name, or load it from where the text says.

    Args:
        text: a name of the registry, the name of an entry point, `package.module:Class` or
            `file.py:Class`.

    Raises:
        AlgorithmError: there is none, or it cannot be used.
    """
    if ":" in text:
        return load(text)
    points = _entry_points(tuple(sys.path)).get(text, [])
    if text in ALGORITHMS:
        if points and not _is_outside(ALGORITHMS[text]):
            log.warning("%s is this package's own algorithm; not used: %s", text, _describe(points))
        return ALGORITHMS[text]
    if len({point.value for point in points}) > 1:
        raise AlgorithmError(
            f"several packages offer an algorithm {text!r}: {_describe(points)}; uninstall all but one, or name the "
            f"class: {points[0].value}"
        )
    if not points:
        raise MissingAlgorithmError(_unknown(text))
    try:
        algorithm = load(re.sub(r"\s|\[.*", "", points[0].value), text)  # without extras, "module:Class [extra]"
        if algorithm.name != text:
            raise AlgorithmError(f"that class calls itself {algorithm.name!r}: an entry point must have the same name")
    except AlgorithmError as error:
        raise type(error)(f"{_describe(points)}: {error}") from None
    _sources[algorithm] = text
    return algorithm


def entry_point_names() -> tuple[str, ...]:
    """Return the names of the entry points that are modes; none of them is imported for it."""
    return tuple(sorted(name for name in _entry_points(tuple(sys.path)) if name not in ALGORITHMS))


def load(text: str, name: str | None = None) -> type[Algorithm]:
    """Import a module or a file, and return the algorithm that is a class in it.

    The current folder can be imported from, and so can a file's own, but behind everything that is
    installed. A file is imported once, however often and under whatever path it is named. A class
    without `@register` is named by its attribute `name`, or else by its class name in lower case
    (FedProx: fed-prox); its label is the class name.

    Args:
        text: `package.module:Class` or `file.py:Class`; `Outer.Inner` is a nested class.
        name: for a class that has none.

    Raises:
        AlgorithmError: there is no such module, file or class, it cannot be imported, it is no
            complete algorithm, or its name is taken.
    """
    with _algorithm_errors():
        location, path = user_code.split(text, FORMS, "class")
        module = user_code.import_named(text, location, _engine_remark)
    algorithm = _pick(text, module, path)
    if not any(algorithm is registered for registered in ALGORITHMS.values()):
        _register(text, algorithm, name)
    if _is_outside(algorithm):
        _sources[algorithm] = text
        digest(algorithm)  # of the source as it has just been imported: it may change while this process runs
    return algorithm


@functools.cache
def digest(algorithm: type[Algorithm]) -> str:
    """Return 12 hexadecimal digits of the SHA-256 of an outside algorithm's source.

    It covers the files of the class, of its options, and of all classes that they inherit from, but
    for those of this package, Pydantic and the standard library. It does not cover other modules
    that these files import, and it is "" where no file is known, for a class typed into a notebook
    for instance. For this package's own algorithms it is "", too.
    """
    classes = [*algorithm.__mro__, *getattr(algorithm, "Options", object).__mro__]
    modules = dict.fromkeys(cls.__module__ for cls in classes if _is_digested(cls.__module__))
    files = dict.fromkeys(filter(None, map(file_of, modules)))
    return digest_of_files(files) if files else ""


def agreed_source(algorithm: type[Algorithm]) -> dict[str, str]:
    """Return the digest of an algorithm's source, by its name in messages.

    Workers compare it at the start. A class in the program that runs has none: programs may differ
    from machine to machine.
    """
    if algorithm.__module__ == "__main__" or not digest(algorithm):
        return {}
    return {f"digest of {algorithm.name}'s source": digest(algorithm)}


def source(algorithm: type[Algorithm]) -> str:
    """Return the text that names an algorithm from outside this package; "" for its own."""
    if not _is_outside(algorithm):
        return ""
    return _sources.get(algorithm, f"{algorithm.__module__}:{algorithm.__qualname__}")


def is_at_fault(algorithm: type[Algorithm], error: BaseException) -> bool:
    """Return whether an exception has come out of the code of an outside algorithm.

    A replacement of this worker would then fail in the same way. Errors of memory or of files do not
    count, nor do errors in a method of one of this package's classes that the algorithm calls.
    """
    if not isinstance(error, Exception) or isinstance(error, (MemoryError, OSError)):
        return False
    classes = [cls for cls in algorithm.__mro__ if _is_digested(cls.__module__)]
    class_files = {file_of(cls.__module__) for cls in classes}
    files = [Path(frame.f_code.co_filename).resolve() for frame, _ in traceback.walk_tb(error.__traceback__)]
    last = max((index for index, file in enumerate(files) if file in class_files), default=None)
    if last is None:
        return False
    called = files[last + 1 : last + 2]
    return not called or called[0].parent != Path(__file__).resolve().parent


def _is_outside(algorithm: type[Algorithm]) -> bool:
    return top(algorithm.__module__) != _PACKAGE


def _is_digested(module: str) -> bool:
    return top(module) not in _NOT_DIGESTED and top(module) not in sys.stdlib_module_names


@functools.lru_cache(maxsize=4)
def _entry_points(folders: tuple[str, ...]) -> dict[str, list[metadata.EntryPoint]]:
    """Return all entry points of the group by their names.

    A package whose metadata cannot be read has none.

    Args:
        folders: where packages are installed, `sys.path`.
    """
    by_name: dict[str, dict[str, metadata.EntryPoint]] = {}
    for distribution in metadata.distributions(path=list(folders)):
        try:
            points = [point for point in distribution.entry_points if point.group == GROUP]
        except Exception as error:  # a text that is no list of entry points
            log.debug("entry points of a package cannot be read: %s", error)
            continue
        for point in points:
            # The first one on the path counts, as for `import`.
            by_name.setdefault(point.name, {}).setdefault(_package_of(point), point)
    return {name: list(points.values()) for name, points in by_name.items()}


def _describe(points: Iterable[metadata.EntryPoint]) -> str:
    texts = (f"entry point {point.name} = {point.value} of {_package_of(point)}" for point in points)
    return " and ".join(dict.fromkeys(texts))


def _package_of(point: metadata.EntryPoint) -> str:
    return str(point.dist.name) if point.dist is not None else "an installed package"


def _unknown(text: str) -> str:
    names = sorted({*ALGORITHMS, *entry_point_names()})
    if text.endswith(".py"):
        return f"{text!r} names a file, but no class in it: {text}:CLASS"
    hint = suggestion(text, names, limit=1, shown=repr)
    return f"unknown algorithm {text!r}{hint}; known: {', '.join(names)}; one of your own: {FORMS}"


def _pick(text: str, module: ModuleType, path: str) -> type[Algorithm]:
    """Return the class of a module; refuse anything but an algorithm."""
    value: Any = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise AlgorithmError(f"{text}: there is no class {path}; {_algorithms_of(module)}") from None
    if isinstance(value, Algorithm):
        raise AlgorithmError(f"{text}: it is an object; name its class {type(value).__name__}")
    if not isinstance(value, type) or not issubclass(value, Algorithm):
        raise AlgorithmError(f"{text}: it should be a subclass of esync.algorithms.Algorithm; {_algorithms_of(module)}")
    if inspect.isabstract(value):
        missing = ", ".join(sorted(value.__abstractmethods__))
        raise AlgorithmError(f"{text}: it is no complete algorithm: it does not define {missing}")
    return value


def _algorithms_of(module: ModuleType) -> str:
    """Return a text that names the algorithms that are defined in a module."""
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Algorithm) and value.__module__ == module.__name__
    ]
    return f"the algorithms there are: {', '.join(names)}" if names else "there is no algorithm there"


def _register(text: str, algorithm: type[Algorithm], name: str | None) -> None:
    """Register a class that has not registered itself."""
    declared = vars(algorithm).get("name")
    if declared is not None and not isinstance(declared, str):
        raise AlgorithmError(f"{text}: its attribute name should be a text, such as {_hyphenated(algorithm)!r}")
    chosen = declared or name or _hyphenated(algorithm)
    try:
        register(chosen, label=algorithm.__name__)(algorithm)
    except (ValueError, TypeError) as error:
        remedy = " (as its attribute name, or with @register)" if repr(chosen) in str(error) else ""
        raise AlgorithmError(f"{text}: {error}{remedy}") from None


def _hyphenated(algorithm: type[Algorithm]) -> str:
    """Return the name of a class in lower case, with hyphens.

    FedProx becomes fed-prox, and DGCAsync dgc-async.
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", algorithm.__name__).lower().strip("_")


@contextlib.contextmanager
def _algorithm_errors() -> Iterator[None]:
    """Turn errors of the user's code into this module's.

    Algorithms that modules had registered before they failed are forgotten.
    """
    before = set(ALGORITHMS)
    try:
        yield
    except UserCodeError as error:
        for name, algorithm in list(ALGORITHMS.items()):
            if name not in before and algorithm.__module__ not in sys.modules:
                del ALGORITHMS[name]
        kind = MissingAlgorithmError if isinstance(error, MissingUserCodeError) else AlgorithmError
        raise kind(str(error)) from None


def _engine_remark(error: BaseException) -> str:
    """Say what to do where a module needs MXNet."""
    if isinstance(error, ImportError) and top(error.name or "") in _ENGINE:
        return " (a module with algorithms must be importable without MXNet: import it inside the methods)"
    return ""
