"""Data sets as users have them: a folder of images, an npz file, RecordIO files."""

import io
import struct
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("cat", "dog", "owl")
#: Height and width of an image.
SIZE = (12, 17)


def pixels(label: int, number: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """An image with colours, whose brightest plane tells its class."""
    rng = np.random.default_rng([label, number])
    image = rng.integers(0, 60, (*size, 3))
    image[..., label] += 150
    return image.astype(np.uint8)


def save(path: Path, image: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)
    return path


def write_folder(folder: Path, train: int = 6, test: int = 2) -> Path:
    """Write DIR/train and DIR/test; without test images, DIR/CLASS."""
    for half, count in (("train", train), ("test", test)) if test else (("", train),):
        for label, name in enumerate(CLASSES):
            for number in range(count):
                save(folder / half / name / f"{number:03d}.png", pixels(label, number + 1000 * (half == "test")))
    return folder


def encoded(image: np.ndarray, form: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, form)
    return out.getvalue()


def record(content: bytes) -> bytes:
    """A record of RecordIO whose content does not have the magic number."""
    return struct.pack("<II", 0xCED7230A, len(content)) + content + bytes(-len(content) % 4)


def write_rec(path: Path, count: int = 4, label: float | None = None) -> Path:
    contents = [
        struct.pack("<IfQQ", 0, index % 3 if label is None else label, index, 0) + encoded(pixels(index % 3, index))
        for index in range(3 * count)
    ]
    path.write_bytes(b"".join(map(record, contents)))
    return path
