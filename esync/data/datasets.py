"""A data set in memory: `load("fashion-mnist")` reads its files once, as unsigned bytes, and checks them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esync import config
from esync.runtime.files import expanded

from .cifar import CifarEntry
from .errors import DataError, broken_file, fetch_remedy
from .idx import read_idx
from .registry import IdxEntry, Split, find_entry


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples; all arrays are read-only uint8.

    Images have shape (samples, height, width), or (samples, 3, height, width) where they have
    colours, with values 0 to 255; labels have shape (samples,) with values below `classes`.
    """

    name: str
    classes: int
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @property
    def channels(self) -> int:
        """Colour planes of an image."""
        return 1 if self.train_images.ndim == 3 else int(self.train_images.shape[1])


def find_data_dir(data_dir: str | Path | None, name: str) -> Path:
    """Return the directory that holds a folder called `name`: data_dir where given, else among config.DATA_DIRS.

    Raises:
        DataError: there is no such folder; the message names every place that was looked at.
    """
    places = [expanded(place) for place in ([data_dir] if data_dir else config.DATA_DIRS)]
    for place in places:
        if (place / name).is_dir():
            return place
    looked_at = ", ".join(str(place / name) for place in places)
    remedy = f"Where it is in another folder, say so: --data-dir FOLDER. {fetch_remedy(places[0], name)}"
    raise DataError(looked_at, "no such folder", expected=f"the files of {name}", remedy=remedy)


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Read a data set into memory (Fashion-MNIST: 55 MB, CIFAR: 184 MB), from where `find_data_dir` finds it.

    The files may hold any number of samples, so a part of a data set in the same format can be used
    too.

    Raises:
        DataError: the set is unknown or not found, or one of its files is missing, broken or does
            not fit the others.
    """
    entry = find_entry(name)
    folder = find_data_dir(data_dir, name) / name
    if isinstance(entry, CifarEntry):
        return Dataset(name, entry.classes, *entry.read(folder))
    return Dataset(name, entry.classes, *_read(folder, entry, entry.train), *_read(folder, entry, entry.test))


def _read(folder: Path, entry: IdxEntry, split: Split) -> tuple[np.ndarray, np.ndarray]:
    images_path, labels_path = folder / split.images.name, folder / split.labels.name
    images, labels = read_idx(images_path, ndim=3), read_idx(labels_path, ndim=1)
    if images.shape[1:] != entry.image_shape:
        raise broken_file(images_path, f"images of {images.shape[1:]} pixels", f"{entry.image_shape}")
    if len(labels) != len(images):
        raise broken_file(
            labels_path, f"{len(labels)} labels", f"{len(images)}, one for each image of {images_path.name}"
        )
    if not len(labels):
        raise broken_file(labels_path, "no samples", "at least one")
    if labels.max() >= entry.classes:
        raise broken_file(labels_path, f"label {labels.max()}", f"labels from 0 to {entry.classes - 1}")
    return images, labels
