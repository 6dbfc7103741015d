"""Decode images (PNG, JPEG, …) into one array: of one size, all grey or all with colours."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from .errors import DataError
from .user_arrays import require_memory

#: Pillow's modes of grey images, and of those with colours, of 8 bits a channel.
GREY, COLOURED = ("1", "L", "LA"), ("P", "RGB", "RGBA", "CMYK", "YCbCr")


class ImageArray:
    """Array of images of one size, which grows by one image after the other.

    It is grey while all images are; the first one with colours makes all of them coloured.

    Args:
        where: the images come from.
        count: how many there will be.
        like: images that these must fit: the training set's, for those of the test set.
    """

    def __init__(self, where: Path, count: int, like: "ImageArray | None" = None) -> None:
        self._where, self._count, self._like = where, count, like
        self._filled = 0
        self.first: Path | str = like.first if like is not None else ""
        self.pixels = np.empty((0, 0, 0), np.uint8)
        if like is not None:
            self.pixels = self._new(like.pixels.shape[1:])

    def add(self, where: Path | str, source: Path | bytes) -> None:
        """Decode an image and append it.

        Args:
            where: the image is, for messages.
            source: file, or content of one.

        Raises:
            DataError: it is no image, is truncated, has another size, or does not fit into memory.
        """
        image = _decoded(where, source)
        if not self.first:
            self.first = where
            self.pixels = self._new(image.shape[:2])
        height, width = self.pixels.shape[-2:]
        if image.shape[:2] != (height, width):
            raise DataError(
                where,
                f"an image of {image.shape[1]} × {image.shape[0]} pixels",
                expected=f"{width} × {height}, as {self.first}",
                remedy="Give all images one size beforehand",
            )
        if image.ndim == 3 and self.pixels.ndim == 3:
            if self._like is not None:
                raise DataError(where, "an image with colours", expected="a grey one, as all of the training set")
            grey = self.pixels
            self.pixels = self._new((3, height, width))
            self.pixels[: self._filled] = grey[: self._filled, np.newaxis]
        self.pixels[self._filled] = image.transpose(2, 0, 1) if image.ndim == 3 else image
        self._filled += 1

    def _new(self, shape: tuple[int, ...]) -> np.ndarray:
        needed = self._count * int(np.prod(shape))
        require_memory(self._where, needed, f"{self._count} images of {shape[-1]} × {shape[-2]} pixels")
        return np.empty((self._count, *shape), np.uint8)


def _decoded(origin: Path | str, source: Path | bytes) -> np.ndarray:
    """Return the pixels: (height, width) of a grey image, (height, width, 3) of a coloured one."""
    from PIL import Image

    file: IO[bytes] | Path = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with _refuse_truncated_images(), Image.open(file) as image:
            mode: Any = image.mode
            if mode in GREY or mode in COLOURED:
                return np.asarray(image.convert("L" if mode in GREY else "RGB"))
    except Exception as error:  # Pillow raises whatever the file makes of it
        raise DataError(origin, f"no image that can be read ({error})", expected="a whole image") from None
    raise DataError(origin, f"an image of Pillow's mode {mode}", expected="8 bits a channel, grey or with colours")


@contextlib.contextmanager
def _refuse_truncated_images() -> Iterator[None]:
    """Make Pillow refuse truncated images, whatever the process has set.

    Importing gluoncv makes Pillow accept them everywhere, and fill what is missing with grey.
    """
    from PIL import ImageFile

    before, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
    try:
        yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before
