"""Registry of data sets: their files with checksums, and where to fetch them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .cifar import Archive, CifarEntry
from .data_file import DataFile
from .errors import DataError


@dataclass(frozen=True)
class Split:
    """Images and labels of the training or the test samples."""

    images: DataFile
    labels: DataFile


@dataclass(frozen=True)
class IdxEntry:
    """A data set of single-channel images in four idx files in a folder of the same name."""

    name: str
    classes: int
    image_shape: tuple[int, int]  # height, width
    train: Split
    test: Split
    mirrors: tuple[str, ...]  # URLs MIRROR/FILE; tried in this order
    debian_package: str = ""  # "" if Debian and Ubuntu have none

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image: colour planes, height, width."""
        return (1, *self.image_shape)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All four files."""
        return (self.train.images, self.train.labels, self.test.images, self.test.labels)

    @property
    def training_samples(self) -> int:
        """Number of training samples: one byte each after the 8 bytes of the labels' header."""
        return self.train.labels.size - 8


FASHION_MNIST = IdxEntry(
    name="fashion-mnist",
    classes=10,
    image_shape=(28, 28),
    train=Split(
        DataFile(
            "train-images-idx3-ubyte.gz",
            47_040_016,
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        DataFile(
            "train-labels-idx1-ubyte.gz",
            60_008,
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
    ),
    test=Split(
        DataFile(
            "t10k-images-idx3-ubyte.gz",
            7_840_016,
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        DataFile(
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

#: The official site, whose archives MXNet's own data sets use, too.
_CIFAR_MIRRORS = ("https://www.cs.toronto.edu/~kriz",)
CIFAR_10 = CifarEntry(
    name="cifar-10",
    classes=10,
    label_bytes=1,
    train=(
        DataFile("data_batch_1.bin", 30_730_000, "aadd24acce27caa71bf4b10992e9e7b2d74c2540"),
        DataFile("data_batch_2.bin", 30_730_000, "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795"),
        DataFile("data_batch_3.bin", 30_730_000, "1dd00a74ab1d17a6e7d73e185b69dbf31242f295"),
        DataFile("data_batch_4.bin", 30_730_000, "aab85764eb3584312d3c7f65fd2fd016e36a258e"),
        DataFile("data_batch_5.bin", 30_730_000, "26e2849e66a845b7f1e4614ae70f4889ae604628"),
    ),
    test=(DataFile("test_batch.bin", 30_730_000, "67eb016db431130d61cd03c7ad570b013799c88c"),),
    archive=Archive("cifar-10-binary.tar.gz", 200_000_000),
    mirrors=_CIFAR_MIRRORS,
)
CIFAR_100 = CifarEntry(
    name="cifar-100",
    classes=100,
    label_bytes=2,
    train=(DataFile("train.bin", 153_700_000, "e207cd2e05b73b1393c74c7f5e7bea451d63e08e"),),
    test=(DataFile("test.bin", 30_740_000, "8fb6623e830365ff53cf14adec797474f5478006"),),
    archive=Archive("cifar-100-binary.tar.gz", 200_000_000),
    mirrors=_CIFAR_MIRRORS,
)

#: A data set of either format.
AnyEntry: TypeAlias = IdxEntry | CifarEntry

REGISTRY: Mapping[str, AnyEntry] = {entry.name: entry for entry in (FASHION_MNIST, CIFAR_10, CIFAR_100)}


def find_entry(name: str) -> AnyEntry:
    """Return the entry with a name.

    Raises:
        DataError: the name is unknown; the message lists the known ones.
    """
    if name not in REGISTRY:
        raise DataError(name, "unknown data set", expected=f"one of {', '.join(REGISTRY)}")
    return REGISTRY[name]
