"""The data sets known by name: their files, the checksums of these, and where they come from. One entry each."""

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import DataError


@dataclass(frozen=True)
class IdxFile:
    """One gzip-compressed idx file; size (bytes) and SHA-256 are those of its *decompressed* content.

    Distributions compress the files again, so that the checksums of the compressed bytes differ from upstream's.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Split:
    """The images and the labels of one half (training or test) of a data set."""

    images: IdxFile
    labels: IdxFile


@dataclass(frozen=True)
class Entry:
    """A data set of single-channel images in four idx files, which lie in a folder of the same name."""

    name: str
    classes: int
    image_shape: tuple[int, int]  # height, width
    train: Split
    test: Split
    mirrors: tuple[str, ...]  # the files lie at MIRROR/FILE; tried in this order
    debian_package: str = ""  # empty: Debian and Ubuntu have none

    @property
    def files(self) -> tuple[IdxFile, ...]:
        """All four files."""
        return (self.train.images, self.train.labels, self.test.images, self.test.labels)

    @property
    def training_samples(self) -> int:
        """How many there are: one byte each behind the 8 of the labels' header."""
        return self.train.labels.size - 8


FASHION_MNIST = Entry(
    name="fashion-mnist",
    classes=10,
    image_shape=(28, 28),
    train=Split(
        IdxFile(
            "train-images-idx3-ubyte.gz",
            47_040_016,
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        IdxFile(
            "train-labels-idx1-ubyte.gz",
            60_008,
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
    ),
    test=Split(
        IdxFile(
            "t10k-images-idx3-ubyte.gz",
            7_840_016,
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        IdxFile(
            "t10k-labels-idx1-ubyte.gz",
            10_008,
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",  # this bucket's site has no https
    ),
    debian_package="dataset-fashion-mnist",
)

REGISTRY: Mapping[str, Entry] = {entry.name: entry for entry in (FASHION_MNIST,)}


def find_entry(name: str, registry: Mapping[str, Entry] = REGISTRY) -> Entry:
    """Return the entry of that name.

    Raises:
        DataError: there is none; the message lists the known names.
    """
    if name not in registry:
        raise DataError(name, "unknown data set", expected=f"one of {', '.join(registry)}")
    return registry[name]
