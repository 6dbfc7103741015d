"""A data set in memory: `load("fashion-mnist")` reads and checks its files once."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esync import config
from esync.runtime.files import expanded
from esync.runtime.output import is_label

from .cifar import CifarEntry
from .errors import DataError, broken_file, fetch_remedy
from .idx import read_idx
from .registry import IdxEntry, Split, find_entry
from .user_data import find_user_data, is_function, load_user_data, short_dataset_name


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples; all arrays are read-only.

    Images have shape (samples, height, width), or (samples, channels, height, width) if they are
    coloured, in uint8 with values from 0 to 255. Labels have shape (samples,) with values below
    `classes`. The samples of a user's data set may have any other shape, and be float32, which networks
    get unchanged.

    Attributes:
        class_names: names of the labels 0, 1, …; empty if they have no names.
        digest: digest of the content of a user's data set; "" for those of this package.
    """

    name: str
    classes: int
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...] = ()
    digest: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of each class; its number where it has none, or none that is unique and fits into tables.

        All are numbers where one of these would be the name of another class.
        """
        names = [*self.class_names, *("" for _ in range(self.classes - len(self.class_names)))]
        labels = [
            name if len(name) <= 50 and is_label(name) and names.count(name) == 1 else str(label)
            for label, name in enumerate(names)
        ]
        return tuple(labels if len({*labels}) == len(labels) else map(str, range(self.classes)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input sample: channels, height, width of an image."""
        shape = self.train_images.shape[1:]
        return (1, *shape) if len(shape) == 2 else shape


def locate(name: str, data_dir: str | Path | None) -> None:
    """Look whether a data set is on this machine, without reading it.

    Raises:
        DataError: it is not.
    """
    if ":" not in name:
        find_data_dir(data_dir, name)
    elif not is_function(name):  # whose source is compared in another way
        find_user_data(name, data_dir)


def find_data_dir(data_dir: str | Path | None, name: str) -> Path:
    """Return the directory with a folder called `name`: `data_dir`, or one of config.DATA_DIRS.

    Relative paths in config.DATA_DIRS are also resolved against the checkout from which this package
    is installed, where `scripts/setup.sh` fetches the data set.

    Raises:
        DataError: the folder does not exist; the message lists the searched directories.
    """
    places = [expanded(directory) for directory in ([data_dir] if data_dir else config.DATA_DIRS)]
    checkout = Path(config.__file__).resolve().parent  # config.py lies at its top
    if not data_dir and (checkout / "scripts" / "setup.sh").is_file():
        places += [checkout / directory for directory in config.DATA_DIRS if not Path(directory).is_absolute()]
    for directory in places:
        if (directory / name).is_dir():
            return directory
    looked_at = ", ".join(str(directory / name) for directory in places)
    remedy = f"If it is in another folder, give --data-dir FOLDER. {fetch_remedy(places[0], name)}"
    raise DataError(looked_at, "no such folder", expected=f"the files of {name}", remedy=remedy)


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Read a data set from the directory that `find_data_dir` returns, or a user's one by its name.

    Fashion-MNIST takes 55 MB of memory, CIFAR 184 MB. The files may contain any number of samples, so
    that a part of a data set in the same format can be used, too.

    Raises:
        DataError: the data set is unknown or not found, or one of its files is missing, broken or
            does not fit the others.
        UserCodeError: the user's function for it cannot be used.
    """
    if ":" in name:
        arrays, class_names = load_user_data(name, data_dir)
        return Dataset(
            short_dataset_name(name), arrays.classes, *arrays.train, *arrays.test, class_names, arrays.digest
        )
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
