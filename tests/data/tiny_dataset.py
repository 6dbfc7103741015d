"""A data set of a few samples in Fashion-MNIST's format.

Run as a script, it is the command line that fetches that data set.
"""

import gzip
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from esync.data.__main__ import main
from esync.data.data_file import DataFile
from esync.data.registry import IdxEntry, Split


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return header + array.astype(np.uint8).tobytes()


def _contents() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    contents = {}
    for half, count in (("train", 40), ("t10k", 20)):
        contents[f"{half}-images-idx3-ubyte.gz"] = idx_bytes(rng.integers(0, 256, (count, 28, 28)))
        contents[f"{half}-labels-idx1-ubyte.gz"] = idx_bytes(np.arange(count) % 10)
    return contents


#: File name → decompressed content.
CONTENTS: Mapping[str, bytes] = _contents()


def _file(name: str) -> DataFile:
    return DataFile(name, len(CONTENTS[name]), hashlib.sha256(CONTENTS[name]).hexdigest())


#: It has the name of the real one, so that `load` reads it.
ENTRY = IdxEntry(
    name="fashion-mnist",
    classes=10,
    image_shape=(28, 28),
    train=Split(_file("train-images-idx3-ubyte.gz"), _file("train-labels-idx1-ubyte.gz")),
    test=Split(_file("t10k-images-idx3-ubyte.gz"), _file("t10k-labels-idx1-ubyte.gz")),
    mirrors=(),
)


def write(data_dir: Path, contents: Mapping[str, bytes] = CONTENTS) -> Path:
    """Put the files under data_dir and return their folder."""
    folder = data_dir / ENTRY.name
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(gzip.compress(content))
    return folder


if __name__ == "__main__":
    sys.exit(main(registry={ENTRY.name: ENTRY}))
