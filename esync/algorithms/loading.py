"""Algorithms from outside this package: `package.module:Class`, `file.py:Class`, and entry points.

Whoever names a class has its module imported, so only the command line, a description of a cluster
and Python code may: nothing that is read from run.json, a checkpoint, a journal or a message comes
here. Entry points of the group `esync.algorithms` make an installed package's algorithm a mode by
its name, and are imported only when they are chosen:

    [project.entry-points."esync.algorithms"]
    feddyn = "feddyn.algorithm:FedDyn"
"""

import contextlib
import difflib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import logging
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from ..runtime.errors import ExpectedError, suggestion
from ..runtime.files import NoHomeError, expanded
from .base import Algorithm
from .registry import ALGORITHMS, register

log = logging.getLogger(__name__)

#: Entry points of this group are modes.
GROUP = "esync.algorithms"
#: How a class outside this package is named.
FORMS = "package.module:Class or file.py:Class"

_PACKAGE = __name__.partition(".")[0]
#: Top-level modules whose sources are no part of a digest, beside the standard library's.
_NOT_DIGESTED = {_PACKAGE, "pydantic"}
#: Top-level modules that need not be there where an algorithm is only named, planned or summarized.
_ENGINE = ("mxnet", "gluoncv")

#: Resolved path → name of the module that the file became.
_files: dict[Path, str] = {}
#: Class → what was typed.
_sources: dict[type[Algorithm], str] = {}


class AlgorithmError(ExpectedError, ValueError):
    """There is no such algorithm, or it cannot be used; the message says why, and what to do."""


class MissingAlgorithmError(AlgorithmError):
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
            log.warning("%s is this package's own algorithm; not used: %s", text, _told(points))
        return ALGORITHMS[text]
    if len({point.value for point in points}) > 1:
        raise AlgorithmError(
            f"several packages offer an algorithm {text!r}: {_told(points)}; uninstall all but one, or name the class: "
            f"{points[0].value}"
        )
    if not points:
        raise MissingAlgorithmError(_unknown(text))
    try:
        algorithm = load(re.sub(r"\s|\[.*", "", points[0].value), text)  # without extras, "module:Class [extra]"
        if algorithm.name != text:
            raise AlgorithmError(f"that class calls itself {algorithm.name!r}: an entry point must have the same name")
    except AlgorithmError as error:
        raise type(error)(f"{_told(points)}: {error}") from None
    _sources[algorithm] = text
    return algorithm


def entry_point_names() -> tuple[str, ...]:
    """Return the names of the entry points that are modes; none of them is imported for it."""
    return tuple(sorted(name for name in _entry_points(tuple(sys.path)) if name not in ALGORITHMS))


def load(text: str, name: str | None = None) -> type[Algorithm]:
    """Import a module or a file, and return the algorithm that is a class in it.

    The current folder can be imported from, and so can a file's own, but behind everything that is
    installed. A file is imported once, however often and under whatever path it is named. A class
    without `@register` gets its own attribute `name`, or else its class name in lower case
    (FedProx: fed-prox), and its class name as its label.

    Args:
        text: `package.module:Class` or `file.py:Class`; `Outer.Inner` is a nested class.
        name: for a class that has none.

    Raises:
        AlgorithmError: there is no such module, file or class, it cannot be imported, it is no
            complete algorithm, or its name is taken.
    """
    place, _, path = text.rpartition(":")
    if not place or not all(part.isidentifier() for part in path.split(".")):
        raise AlgorithmError(f"{text!r} names no class; expected {FORMS}")
    _make_importable(os.getcwd())
    module = _import_file(text, place) if place.endswith(".py") else _import_module(text, place)
    algorithm = _pick(text, module, path)
    if not any(algorithm is each for each in ALGORITHMS.values()):
        _register(text, algorithm, name)
    if _is_outside(algorithm):
        _sources[algorithm] = text
        digest(algorithm)  # of the source as it has just been imported: it may change while this process runs
    return algorithm


@functools.cache
def digest(algorithm: type[Algorithm]) -> str:
    """Return 12 hexadecimal digits of the SHA-256 of an algorithm's source; "" for this package's own.

    It covers the files of the class, of its options, and of all classes that they inherit from, but
    for those of this package, Pydantic and the standard library. It does not cover other modules
    that these files import, and it is "" where no file is known, for a class typed into a notebook
    for instance.
    """
    classes = [*algorithm.__mro__, *getattr(algorithm, "Options", object).__mro__]
    modules = dict.fromkeys(each.__module__ for each in classes if _is_digested(each.__module__))
    files = dict.fromkeys(filter(None, map(_file_of, modules)))
    total = hashlib.sha256()
    for file in files:
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:12] if files else ""


def agreed_source(algorithm: type[Algorithm]) -> dict[str, str]:
    """Return what workers compare at the start, by its name in messages: the digest of an algorithm's source.

    A class in the program that runs has none: programs may differ from machine to machine.
    """
    if algorithm.__module__ == "__main__" or not digest(algorithm):
        return {}
    return {f"digest of {algorithm.name}'s source": digest(algorithm)}


def source(algorithm: type[Algorithm]) -> str:
    """Return what was typed to get an algorithm from outside this package; "" for this package's own."""
    if not _is_outside(algorithm):
        return ""
    return _sources.get(algorithm, f"{algorithm.__module__}:{algorithm.__qualname__}")


def is_at_fault(algorithm: type[Algorithm], error: BaseException) -> bool:
    """Whether an exception has come out of the code of an algorithm from outside this package.

    Another worker in the place of this one would do the same. Not so where memory or a file failed,
    or where the method of a base class failed that an overriding one calls.
    """
    if not isinstance(error, Exception) or isinstance(error, (MemoryError, OSError)):
        return False
    classes = [each for each in algorithm.__mro__ if _is_digested(each.__module__)]
    own = {_file_of(each.__module__) for each in classes}
    files = [Path(frame.f_code.co_filename).resolve() for frame, _ in traceback.walk_tb(error.__traceback__)]
    last = max((place for place, file in enumerate(files) if file in own), default=None)
    if last is None:
        return False
    called = files[last + 1 : last + 2]
    return not called or called[0].parent != Path(__file__).resolve().parent


def _is_outside(algorithm: type[Algorithm]) -> bool:
    return _top(algorithm.__module__) != _PACKAGE


def _is_digested(module: str) -> bool:
    return _top(module) not in _NOT_DIGESTED and _top(module) not in sys.stdlib_module_names


def _top(module: str) -> str:
    return module.partition(".")[0]


def _file_of(module: str) -> Path | None:
    """Return the resolved path of a module's file; None where it has none."""
    file = getattr(sys.modules.get(module), "__file__", None)
    path = Path(file).resolve() if file else None
    return path if path is not None and path.is_file() else None


@functools.lru_cache(maxsize=4)
def _entry_points(folders: tuple[str, ...]) -> dict[str, list[metadata.EntryPoint]]:
    """Return all entry points of the group by their names; a package whose metadata cannot be read has none.

    Args:
        folders: where packages are installed, `sys.path`.
    """
    found: dict[str, dict[str, metadata.EntryPoint]] = {}
    for distribution in metadata.distributions(path=list(folders)):
        try:
            points = [point for point in distribution.entry_points if point.group == GROUP]
        except Exception as error:  # a text that is no list of entry points, whoever wrote it
            log.debug("entry points of a package cannot be read: %s", error)
            continue
        for point in points:
            # The first one on the path counts, as for `import`.
            found.setdefault(point.name, {}).setdefault(_package_of(point), point)
    return {name: list(points.values()) for name, points in found.items()}


def _told(points: Iterable[metadata.EntryPoint]) -> str:
    texts = (f"entry point {point.name} = {point.value} of {_package_of(point)}" for point in points)
    return " and ".join(dict.fromkeys(texts))


def _package_of(point: metadata.EntryPoint) -> str:
    return str(point.dist.name) if point.dist is not None else "an installed package"


def _unknown(text: str) -> str:
    names = sorted({*ALGORITHMS, *entry_point_names()})
    if text.endswith(".py"):
        return f"{text!r} names a file, but no class in it: {text}:CLASS"
    meant = suggestion(text, names, most=1, shown=repr)
    return f"unknown algorithm {text!r}{meant}; known: {', '.join(names)}; one of your own: {FORMS}"


def _make_importable(folder: str) -> None:
    """Have a folder's modules be found, behind those of every folder that is searched already."""
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()  # files that were written a moment ago are found, too


def _import_module(text: str, name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        meant = f"; did you mean {name}.py:{text.rpartition(':')[2]}?" if Path(f"{name}.py").is_file() else ""
        raise AlgorithmError(f"{text!r} should be {FORMS}{meant}")
    with _readable(text):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise MissingAlgorithmError(
                f"{text}: there is no module {error.name!r}, neither in {os.getcwd()}, where this was started, nor "
                f"among the packages of {sys.executable}"
            ) from None
    file, here = _file_of(name), Path.cwd()
    path = here.joinpath(*name.split("."))
    if file is not None and any(
        each.is_file() and each != file for each in (path.with_suffix(".py"), path / "__init__.py")
    ):
        log.warning("%s is %s, not the one in %s: what is installed goes first", name, file, here)
    return module


def _import_file(text: str, file: str) -> ModuleType:
    """Import a file, or return the module that it is already."""
    try:
        path = expanded(file).resolve()
    except NoHomeError as error:
        raise AlgorithmError(f"{text}: {error}") from None
    for name in (_files.get(path, ""), path.stem, "__main__"):
        if _file_of(name) == path:
            return sys.modules[name]
    if not path.is_file():
        wrong = "is a folder" if path.is_dir() else "is not there"
        close = difflib.get_close_matches(path.name, [each.name for each in path.parent.glob("*.py")], 1)
        raise MissingAlgorithmError(f"{text}: the file {path} {wrong}{f'; did you mean {close[0]}?' if close else ''}")
    _make_importable(str(path.parent))
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Pydantic, dataclasses and pickle look classes up there
    with _readable(text):
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise
    _files[path] = name
    return module


def _module_name(path: Path) -> str:
    """Return the name under which `import` would find a file, or where that means another module, one of its own."""
    name = path.stem
    if name.isidentifier() and name not in sys.modules:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path:
            return name
    return re.sub(r"\W", "_", name) + "_" + hashlib.sha256(os.fsencode(path)).hexdigest()[:8]


def _pick(text: str, module: ModuleType, path: str) -> type[Algorithm]:
    """Return the class of a module; refuse what is no algorithm."""
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise AlgorithmError(f"{text}: there is no class {path}; {_algorithms_of(module)}") from None
    if isinstance(found, Algorithm):
        raise AlgorithmError(f"{text}: it is an object; name its class {type(found).__name__}")
    if not isinstance(found, type) or not issubclass(found, Algorithm):
        raise AlgorithmError(f"{text}: it should be a subclass of esync.algorithms.Algorithm; {_algorithms_of(module)}")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise AlgorithmError(f"{text}: it is no complete algorithm: it does not define {missing}")
    return found


def _algorithms_of(module: ModuleType) -> str:
    """Name the algorithms that are defined in a module."""
    names = [
        name
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, Algorithm) and each.__module__ == module.__name__
    ]
    return f"the algorithms there are: {', '.join(names)}" if names else "there is no algorithm there"


def _register(text: str, algorithm: type[Algorithm], name: str | None) -> None:
    """Register a class that has not registered itself."""
    own = vars(algorithm).get("name")
    if own is not None and not isinstance(own, str):
        raise AlgorithmError(f"{text}: its attribute name should be a text, such as {_hyphenated(algorithm)!r}")
    chosen = own or name or _hyphenated(algorithm)
    try:
        register(chosen, label=algorithm.__name__)(algorithm)
    except (ValueError, TypeError) as error:
        remedy = " (as its attribute name, or with @register)" if repr(chosen) in str(error) else ""
        raise AlgorithmError(f"{text}: {error}{remedy}") from None


def _hyphenated(algorithm: type[Algorithm]) -> str:
    """Return the name of a class in lower case: FedProx, fed-prox; DGCAsync, dgc-async."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", algorithm.__name__).lower().strip("_")


@contextlib.contextmanager
def _readable(text: str) -> Iterator[None]:
    """Turn whatever an import raises into one sentence, and forget the algorithms of modules that have failed."""
    before = set(ALGORITHMS)
    try:
        yield
    except (Exception, SystemExit) as error:
        for name, algorithm in list(ALGORITHMS.items()):
            if name not in before and algorithm.__module__ not in sys.modules:
                del ALGORITHMS[name]
        if isinstance(error, AlgorithmError):
            raise
        raise AlgorithmError(f"{text} cannot be imported: {_place(error)}{_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """Say what an import has raised, and what to do where that is known."""
    reason = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SystemExit):
        reason += " (it calls sys.exit while it is imported)"
    elif isinstance(error, ImportError) and _top(error.name or "") in _ENGINE:
        reason += " (a module with algorithms must be importable without MXNet: import it inside the methods)"
    elif isinstance(error, ImportError) and "no known parent package" in str(error):
        reason += " (a file of a package is named as package.module:Class)"
    return reason


def _place(error: BaseException) -> str:
    """Return "file, line n: " of the line, in the user's own files where possible, that has raised an exception."""
    if isinstance(error, SyntaxError) and error.filename and os.path.isabs(error.filename):
        return f"{_short(error.filename)}, line {error.lineno}: " if error.lineno else f"{_short(error.filename)}: "
    here = str(Path(__file__).parents[1]) + os.sep
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((here, "<frozen", sysconfig.get_path("stdlib") + os.sep + "importlib"))
    ]
    own = [frame for frame in frames if not _is_installed(frame.filename)]
    for frame in (own or frames)[-1:]:
        return f"{_short(frame.filename)}, line {frame.lineno}: "
    return ""


def _is_installed(file: str) -> bool:
    """Whether a file is the standard library's or an installed package's."""
    return file.startswith((sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))) or "dist-packages" in file


def _short(file: str) -> str:
    """Return a path relative to the current folder where it is below it."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
