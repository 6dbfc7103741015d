"""A user's data sets by name: npz:FILE, folder:DIR, rec:FILE, or a function."""

from pathlib import Path

from ..runtime import user_functions
from ..runtime.errors import suggestion
from ..runtime.files import expanded
from ..runtime.user_functions import short_name
from .data_functions import load_function
from .errors import DataError
from .image_folder import LAYOUT, load_folder
from .npz import load_npz
from .recordio import find_files, load_rec
from .registry import REGISTRY
from .user_arrays import UserArrays

FORMS = f"npz:FILE, folder:DIR, rec:FILE, {user_functions.FORMS}"
KINDS = ("npz", "folder", "rec")


def check_name(text: str) -> str:
    """Return the text if it is a valid name of a data set, which is not read except for a function's source.

    Raises:
        ValueError: it is invalid; the message lists the valid forms.
    """
    kind, _, rest = text.partition(":")
    if is_function(text):
        user_functions.check(text)
    elif kind in KINDS and not rest:
        raise ValueError(f"{text!r} names no {'folder' if kind == 'folder' else 'file'}; expected {FORMS}")
    elif ":" not in text and text not in REGISTRY:
        hint = suggestion(text, REGISTRY, limit=1, shown=repr) or _with_kind(text)
        raise ValueError(f"unknown data set {text!r}{hint}; known: {', '.join(REGISTRY)}; one of your own: {FORMS}")
    return text


def is_function(text: str) -> bool:
    """Return whether a data set is returned by a function."""
    return ":" in text and text.partition(":")[0] not in KINDS


def short_dataset_name(text: str) -> str:
    """Return a name without folders, for messages, run.json and checkpoints: folder:pets for folder:/data/pets."""
    kind, _, rest = text.partition(":")
    return f"{kind}:{Path(rest).name}" if kind in KINDS else short_name(text)


def find_user_data(text: str, data_dir: str | Path | None) -> Path:
    """Return the path of a file or a folder, which is relative to data_dir or else to the current folder.

    Raises:
        DataError: it does not exist.
    """
    kind, _, rest = text.partition(":")
    path = expanded(data_dir or ".") / expanded(rest)
    if kind == "rec":
        find_files(path)
    elif kind == "folder" and not path.is_dir():
        raise DataError(path, "is a file" if path.exists() else "no such folder", expected=LAYOUT)
    elif kind == "npz" and not path.is_file():
        raise DataError(path, "is a folder" if path.exists() else "no such file", expected="a file of numpy.savez")
    return path


def load_user_data(text: str, data_dir: str | Path | None) -> tuple[UserArrays, tuple[str, ...]]:
    """Read a user's data set, and the names of its classes if they have any.

    Raises:
        DataError: it does not exist, or is invalid.
        UserCodeError: the function for it cannot be used.
    """
    if is_function(text):
        return load_function(text), ()
    path = find_user_data(text, data_dir)
    if text.startswith("folder:"):
        return load_folder(path)
    return (load_npz if text.startswith("npz:") else load_rec)(path), ()


def _with_kind(text: str) -> str:
    path = Path(text)
    if text.endswith(".py"):
        return f", which is a file: name a function in it, {text}:FUNCTION"
    kinds = {"folder": path.is_dir(), "npz": path.suffix == ".npz", "rec": path.suffix == ".rec"}
    return "".join(f" (did you mean {kind}:{text}?)" for kind, matches in kinds.items() if matches)
