"""Decode images (PNG, JPEG, …) of one size into one array, all grey or all coloured."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from .errors import DataError
from .user_arrays import require_memory

#: Pillow's modes of grey and of coloured images with 8 bits per channel.
GREY, COLOURED = ("1", "L", "LA"), ("P", "RGB", "RGBA", "CMYK", "YCbCr")


class ImageArray:
    """Array of images of one size, to which images are appended.

    It is grey until the first coloured image is added, which converts all of them.

    Args:
        where: origin of the images, for messages.
        count: number of images to be added.
        like: images of the same shape and colours: for a test set, those of the training set.
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
            where: origin of the image, for messages.
            source: a file, or the content of one.

        Raises:
            DataError: it is not an image, is truncated, has another size, or does not fit into memory.
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
    except Exception as error:  # Pillow may raise any exception for an invalid file
        raise DataError(origin, f"no image that can be read ({error})", expected="a whole image") from None
    raise DataError(origin, f"an image of Pillow's mode {mode}", expected="8 bits a channel, grey or with colours")


@contextlib.contextmanager
def _refuse_truncated_images() -> Iterator[None]:
    """Let Pillow refuse truncated images, which it accepts and fills with grey after an import of gluoncv."""
    from PIL import ImageFile

    before, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
    try:
        yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before
