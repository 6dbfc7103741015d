"""Data sets in a file of NumPy's: npz:FILE."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from .errors import DataError
from .user_arrays import UserArrays, check_arrays, require_memory

#: Keys of training samples and labels, test samples and labels, as Keras and others write them.
SPELLINGS = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
)
KEYS = " or ".join(", ".join(keys) for keys in SPELLINGS)


def load_npz(path: Path) -> UserArrays:
    """Read a data set from a file that numpy.savez or savez_compressed has written.

    Raises:
        DataError: it is not such a file, a key is missing, or an array cannot be used.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
    except (zipfile.BadZipFile, OSError) as error:
        raise _no_npz(path, error) from None
    keys = max(SPELLINGS, key=lambda keys: len(sizes.keys() & set(keys)))
    needed = keys if sizes.keys() & set(keys[2:]) else keys[:2]  # without a test set, one is split off
    if missing := [key for key in needed if key not in sizes]:
        names = ", ".join(sizes) or "nothing"
        raise DataError(path, f"has no array {', '.join(missing)}, but {names}", expected=KEYS)
    require_memory(path, sum(sizes[key] for key in needed), "its arrays")
    arrays = []
    try:
        with np.load(path, allow_pickle=False) as content:
            for key in needed:
                arrays.append(content[key])
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, MemoryError) as error:
        array = f" (array {needed[len(arrays)]})" if len(arrays) < len(needed) else ""
        raise DataError(f"{path}{array}", f"cannot be read: {error}", expected="an array of numbers") from None
    x, y, *test = arrays
    return check_arrays(str(path), (x, y), (test[0], test[1]) if test else None)


def _no_npz(path: Path, error: Exception) -> DataError:
    wrong = f"unreadable ({error.strerror})" if isinstance(error, OSError) else f"no npz file ({error})"
    return DataError(path, wrong, expected=f"a file of numpy.savez with the arrays {KEYS}")
