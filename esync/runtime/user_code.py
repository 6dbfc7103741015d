"""Import modules and files that a user names, once, with readable errors.

The user's algorithms, networks and data sets are loaded here. Since that executes code, names are
accepted from the command line, the description of a cluster and Python code only, never from run.json,
a checkpoint, a journal or a message.
"""

import contextlib
import difflib
import hashlib
import importlib
import importlib.util
import logging
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

from .errors import ExpectedError
from .files import NoHomeError, expanded

log = logging.getLogger(__name__)

#: Resolved path of a file → name of its module.
_files: dict[Path, str] = {}


class UserCodeError(ExpectedError, ValueError):
    """Raised when named code cannot be used; the message says why, and what to do."""


class MissingUserCodeError(UserCodeError):
    """Raised when a file, module or name does not exist on this machine."""


def split(text: str, forms: str, what: str) -> tuple[str, str]:
    """Split a text into a module or file, and a name in it.

    Args:
        text: `package.module:name` or `file.py:name`; `Outer.Inner` is a nested name.
        forms: the two forms, as the error message shows them.
        what: kind of the named object, for instance "class".

    Raises:
        UserCodeError: the text has neither form.
    """
    source, _, path = text.rpartition(":")
    if not source or not all(part.isidentifier() for part in path.split(".")):
        raise UserCodeError(f"{text!r} names no {what}; expected {forms}")
    if not source.endswith(".py") and not all(part.isidentifier() for part in source.split(".")):
        hint = f"; did you mean {source}.py:{path}?" if Path(f"{source}.py").is_file() else ""
        raise UserCodeError(f"{text!r} should be {forms}{hint}")
    return source, path


def import_named(text: str, source: str, remark: Callable[[BaseException], str] = lambda error: "") -> ModuleType:
    """Import a module or a file.

    Installed modules have precedence over those in the current folder and in the file's folder. A file
    is imported once, whatever the paths by which it is named.

    Args:
        text: the text that was typed, for messages.
        source: the module or the file in it.
        remark: returns the remedy for an exception, or "" if unknown.

    Raises:
        UserCodeError: the module or file does not exist, or cannot be imported.
    """
    make_importable(os.getcwd())
    with readable_errors(f"{text} cannot be imported", lambda error: _of_import(error) + remark(error)):
        return _import_file(text, source) if source.endswith(".py") else _import_module(text, source)


@contextlib.contextmanager
def readable_errors(what: str, remark: Callable[[BaseException], str] = lambda error: "") -> Iterator[None]:
    """Convert an exception of the user's code to a UserCodeError with its file and line.

    Args:
        what: beginning of the message.
        remark: returns the remedy for an exception, or "" if unknown.
    """
    try:
        yield
    except UserCodeError:
        raise
    except (Exception, SystemExit) as error:
        reason = traceback.format_exception_only(error)[-1].strip()
        raise UserCodeError(f"{what}: {_place(error)}{reason}{remark(error)}") from None


def find_file(text: str, source: str) -> Path:
    """Return the resolved path of a file that was named.

    Raises:
        MissingUserCodeError: the file does not exist.
        UserCodeError: its path begins with a home directory that does not exist.
    """
    try:
        path = expanded(source).resolve()
    except NoHomeError as error:
        raise UserCodeError(f"{text}: {error}") from None
    if not path.is_file():
        wrong = "is a folder" if path.is_dir() else "is not there"
        close = difflib.get_close_matches(path.name, [candidate.name for candidate in path.parent.glob("*.py")], 1)
        raise MissingUserCodeError(f"{text}: the file {path} {wrong}{f'; did you mean {close[0]}?' if close else ''}")
    return path


def no_module(text: str, name: str) -> MissingUserCodeError:
    """Return the error for a missing module."""
    return MissingUserCodeError(
        f"{text}: there is no module {name!r}, neither in {os.getcwd()}, where this was started, nor among the "
        f"packages of {sys.executable}"
    )


def file_of(module: str) -> Path | None:
    """Return the resolved path of an imported module's file, or None if it has no file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    path = Path(file).resolve() if file else None
    return path if path is not None and path.is_file() else None


def digest_of_files(files: Iterable[Path]) -> str:
    """Return 12 hexadecimal digits of the SHA-256 of the content of files."""
    total = hashlib.sha256()
    for file in files:
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:12]


def remedy(text: str) -> str:
    """Return the remedy for a machine without the code, or with another version of it."""
    source = text.rpartition(":")[0]
    if source.endswith(".py"):
        return f"copy {source} there; a relative path begins in the host's workdir, {os.getcwd()}"
    return f"install the same version of its package for {sys.executable} there, or copy it to {os.getcwd()}"


def top(module: str) -> str:
    """Return the first part of a module's name."""
    return module.partition(".")[0]


def make_importable(folder: str) -> None:
    """Append a folder to the module search path."""
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()  # files that were written a moment ago are found, too


def _import_module(text: str, name: str) -> ModuleType:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise no_module(text, error.name) from None
    file, folder = file_of(name), Path.cwd()
    path = folder.joinpath(*name.split("."))
    if file is not None and any(
        candidate.is_file() and candidate != file for candidate in (path.with_suffix(".py"), path / "__init__.py")
    ):
        log.warning("%s is %s, not the one in %s: what is installed goes first", name, file, folder)
    return module


def _import_file(text: str, file: str) -> ModuleType:
    """Import a file, or return its module if it has been imported already."""
    path = find_file(text, file)
    for name in (_files.get(path, ""), path.stem, "__main__"):
        if file_of(name) == path:
            return sys.modules[name]
    make_importable(str(path.parent))
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Pydantic, dataclasses and pickle look up classes there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    _files[path] = name
    return module


def _module_name(path: Path) -> str:
    """Return the name for the module of a file: its import name or, if that is another module's, a unique one."""
    name = path.stem
    if name.isidentifier() and name not in sys.modules:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path:
            return name
    return re.sub(r"\W", "_", name) + "_" + hashlib.sha256(os.fsencode(path)).hexdigest()[:8]


def _of_import(error: BaseException) -> str:
    """Return the remedy for an exception in an import, or "" if unknown."""
    if isinstance(error, SystemExit):
        return " (it calls sys.exit while it is imported)"
    if isinstance(error, ImportError) and "no known parent package" in str(error):
        return " (a file of a package is named as package.module:NAME)"
    return ""


def _place(error: BaseException) -> str:
    """Return the file and line of an exception, as "file, line n: ".

    That is the innermost line in the user's files, if there is one.
    """
    if isinstance(error, SyntaxError) and error.filename and os.path.isabs(error.filename):
        return f"{_short(error.filename)}, line {error.lineno}: " if error.lineno else f"{_short(error.filename)}: "
    frame = users_frame(traceback.extract_tb(error.__traceback__))
    return f"{place_of(frame)}: " if frame is not None else ""


def users_frame(stack: Iterable[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """Return the innermost (last) frame in the user's files, or else the innermost frame."""
    package = str(Path(__file__).parents[1]) + os.sep
    frames = [
        frame
        for frame in stack
        if not frame.filename.startswith((package, "<frozen", sysconfig.get_path("stdlib") + os.sep + "importlib"))
    ]
    # MXNet's operators are functions without a file.
    users_frames = [frame for frame in frames if not _is_installed(frame.filename) and frame.filename != "<string>"]
    return next(reversed(users_frames or frames), None)


def place_of(frame: traceback.FrameSummary) -> str:
    """Return file and line of a frame, as "file, line n"."""
    return f"{_short(frame.filename)}, line {frame.lineno}"


def _is_installed(file: str) -> bool:
    """Return whether a file belongs to the standard library or an installed package."""
    return file.startswith(sysconfig.get_path("stdlib")) or "site-packages" in file or "dist-packages" in file


def _short(file: str) -> str:
    """Return a path relative to the current folder if it is below it, otherwise unchanged."""
    path, current = Path(file), Path.cwd()
    return str(path.relative_to(current)) if path.is_relative_to(current) else file
