"""Read images in one folder per class: folder:DIR.

The images are DIR/train/CLASS/IMAGE and DIR/test/CLASS/IMAGE.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..runtime.errors import enumeration
from .errors import DataError
from .image_array import ImageArray
from .user_arrays import LabeledSamples, UserArrays, check_arrays

log = logging.getLogger(__name__)

#: Suffixes of images; other files are ignored.
ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
#: Names of the test set's folder; the first existing one is used.
TEST = ("test", "val")
LAYOUT = "DIR/train/CLASS/IMAGE and DIR/test/CLASS/IMAGE, or DIR/CLASS/IMAGE"


def load_folder(folder: Path) -> tuple[UserArrays, tuple[str, ...]]:
    """Read a data set, and the names of its classes in the order of their labels.

    Classes are numbered in the order of their names, and images are sorted by name.

    Raises:
        DataError: the folder has another layout, a class is empty, or an image cannot be used.
    """
    inside = {subfolder.name: subfolder for subfolder in _folders(folder)}
    train = inside.get("train", folder)
    test = next((inside[name] for name in TEST if name in inside), None) if "train" in inside else None
    names = [subfolder.name for subfolder in _folders(train)]
    if not names:
        raise DataError(train, "no folders of classes", expected=LAYOUT)
    images, train_samples = _read(train, names)
    test_samples = None
    if test is not None:
        if unknown := [subfolder.name for subfolder in _folders(test) if subfolder.name not in names]:
            reason = "a class that has no folder in the training set"
            raise DataError(test / unknown[0], reason, expected=enumeration(names, 10))
        _, test_samples = _read(test, [subfolder.name for subfolder in _folders(test)], names, images)
    return check_arrays(str(folder), train_samples, test_samples, names), tuple(names)


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder by name, without hidden ones."""
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise DataError(folder, f"unreadable ({error.strerror})", expected=LAYOUT) from None


def _read(
    folder: Path, names: Sequence[str], labels: Sequence[str] = (), like: ImageArray | None = None
) -> tuple[ImageArray, LabeledSamples]:
    """Read the images of these classes.

    Labels are the indices of the classes in `labels`, or else in `names`.
    """
    files = _files(folder, names)
    images = ImageArray(folder, sum(map(len, files.values())), like)
    for paths in files.values():
        for path in paths:
            images.add(path, path)
    numbers = [(labels or names).index(name) for name in files]
    return images, (images.pixels, np.repeat(numbers, [len(paths) for paths in files.values()]))


def _files(folder: Path, names: Sequence[str]) -> Mapping[str, list[Path]]:
    """Return the image files of each class by name."""
    left_out = [entry for entry in sorted(folder.iterdir()) if entry.is_file() and not entry.name.startswith(".")]
    images: dict[str, list[Path]] = {}
    for name in names:
        entries = sorted(entry for entry in (folder / name).iterdir() if not entry.name.startswith("."))
        for entry in entries:
            if entry.is_dir():
                raise DataError(entry, "a folder in the folder of a class", expected=LAYOUT)
        images[name] = [entry for entry in entries if entry.suffix.lower() in ENDINGS]
        left_out += [entry for entry in entries if entry.suffix.lower() not in ENDINGS]
        if not images[name]:
            raise DataError(
                folder / name, "no image in the folder of a class", expected=f"files {', '.join(sorted(ENDINGS))}"
            )
    if left_out:
        log.warning("%s: files that are no images of a class are left out: %d, %s", folder, len(left_out), left_out[0])
    return images
