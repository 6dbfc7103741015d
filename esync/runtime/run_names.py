"""Names of runs: the folder of a run with a name is `{mode}@{name}` instead of `{mode}`."""

import re
from collections.abc import Collection

#: Separator of mode and name in a folder's name, which no mode's name contains.
SEPARATOR = "@"
#: Largest number of characters of a name.
LENGTH = 60
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LENGTH - 1}}}")
_SEED = re.compile(r"(?:(.*)-)?seed[0-9]+")


def run_name(text: str) -> str:
    """Return the name of a run if it is valid in the name of a folder.

    Raises:
        ValueError: it is invalid; the message says what is expected.
    """
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"{text!r} cannot name a run: expected up to {LENGTH} letters, digits, '.', '_' and '-', beginning with a "
            "letter or a digit, because a folder gets this name"
        )
    return text


def folder_name(folder: str, name: str) -> str:
    """Return the name of the folder of a run; `folder` is its mode's."""
    return f"{folder}{SEPARATOR}{name}" if name else folder


def parts(folder: str) -> tuple[str, str]:
    """Return the mode's folder and the run's name ("" if it has none) of a run's folder."""
    mode, _, name = folder.partition(SEPARATOR)
    return (mode, name) if mode and name else (folder, "")


def with_seed(name: str, seed: int) -> str:
    """Return the name of one of the runs of `--repeat`."""
    return f"{name}-seed{seed}" if name else f"seed{seed}"


def without_seed(name: str) -> str:
    """Return the common part of the names of the runs of `--repeat`; "" if there is none."""
    match = _SEED.fullmatch(name)
    return match[1] or "" if match else name


def unused(name: str, used: Collection[str]) -> str:
    """Return the name, with a number appended if it is used."""
    names = (name, *(f"{name}-{number}" for number in range(2, len(used) + 3)))
    return next(candidate for candidate in names if candidate not in used)
