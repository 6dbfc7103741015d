"""Exception for data that cannot be used."""

import shlex
from pathlib import Path

from esync import config
from esync.runtime.errors import ExpectedError


class DataError(ExpectedError, ValueError):
    """Raised for data that cannot be used.

    The message names the data, the problem, the expected content, and a remedy.
    """

    def __init__(self, where: Path | str, wrong: str, *, expected: str = "", remedy: str = ""):
        self.where, self.wrong = where, wrong
        message = f"{where}: {wrong}"
        if expected:
            message += f"; expected {expected}"
        if remedy:
            message += f". {remedy}"
        super().__init__(message)


def fetch_remedy(data_dir: Path | str, name: str) -> str:
    """Return the end of an error message: the command that fetches a data set to `data_dir`."""
    which = "" if name == config.DATASET else f" -d {shlex.quote(name)}"
    return f"To get it anew: python -m esync.data fetch --to {shlex.quote(str(data_dir))}{which}"


def unreadable(error: OSError) -> str:
    """Return the problem of a file that cannot be read."""
    return "no such file" if isinstance(error, FileNotFoundError) else f"unreadable ({error.strerror or error})"


def broken_file(path: Path, wrong: str, expected: str) -> DataError:
    """Return the error for an invalid file DATA_DIR/SET/FILE."""
    return DataError(path, wrong, expected=expected, remedy=fetch_remedy(path.parent.parent, path.parent.name))
