"""CIFAR-10 and CIFAR-100 (cs.toronto.edu/~kriz/cifar.html): colour images in binary files.

All files are in one archive. A record has one or two label bytes (CIFAR-100: the coarse class, then
the fine one, which is learnt) and 3,072 bytes of an image: its red, green and blue plane, each with
32 rows of 32 pixels.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .data_file import DataFile
from .errors import DataError, broken_file, unreadable

SHAPE = (3, 32, 32)  # colour planes, height, width
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Archive:
    """The archive in which the files are downloaded.

    Attributes:
        name: the archive's name; it is at MIRROR/NAME.
        size: upper limit of its size in bytes.
    """

    name: str
    size: int


@dataclass(frozen=True)
class CifarEntry:
    """A data set of colour images, whose files are in a folder of the same name.

    Paths inside the archive are ignored.
    """

    name: str
    classes: int
    label_bytes: int
    train: tuple[DataFile, ...]
    test: tuple[DataFile, ...]
    archive: Archive
    mirrors: tuple[str, ...]
    debian_package: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image: colour planes, height, width."""
        return SHAPE

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files of the data set."""
        return self.train + self.test

    @property
    def training_samples(self) -> int:
        """Number of training samples."""
        return sum(file.size for file in self.train) // (PIXELS + self.label_bytes)

    def read(self, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return training images and labels, then test images and labels.

        Images have shape (samples, 3, 32, 32).

        Raises:
            DataError: a file is missing, does not consist of whole records, or has invalid labels.
        """
        return *self._records(folder, self.train), *self._records(folder, self.test)

    def _records(self, folder: Path, files: tuple[DataFile, ...]) -> tuple[np.ndarray, np.ndarray]:
        size = PIXELS + self.label_bytes
        parts = []
        for file in files:
            path = folder / file.name
            try:
                content = np.fromfile(path, np.uint8)
            except OSError as error:
                raise broken_file(path, unreadable(error), f"records of {size} bytes") from None
            if not content.size or content.size % size:
                raise broken_file(path, f"{content.size} bytes", f"whole records of {size} bytes")
            records = content.reshape(-1, size)
            if records[:, self.label_bytes - 1].max() >= self.classes:
                wrong = f"label {records[:, self.label_bytes - 1].max()}"
                raise broken_file(path, wrong, f"labels from 0 to {self.classes - 1}")
            parts.append(records)
        records = np.concatenate(parts)
        images = np.ascontiguousarray(records[:, self.label_bytes :]).reshape(-1, *SHAPE)
        labels = np.ascontiguousarray(records[:, self.label_bytes - 1])
        images.flags.writeable = labels.flags.writeable = False
        return images, labels


def members(archive: Path, files: dict[str, DataFile]) -> Iterator[tuple[DataFile, bytes]]:
    """Yield the given files of an archive, identified by the last component of their path.

    Raises:
        DataError: it is not a complete archive.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                file = files.get(Path(member.name).name)
                stream = tar.extractfile(member) if file is not None and member.isfile() else None
                if file is not None and stream is not None:
                    yield file, stream.read(file.size + 1)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(archive.name, f"not a complete archive ({error})") from None
