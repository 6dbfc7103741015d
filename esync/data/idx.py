"""Read and check a gzip-compressed idx file, the format of MNIST and Fashion-MNIST.

It begins with two zero bytes, one byte for the type of the elements (8: unsigned byte), and one for
the number of dimensions. Then come the dimensions as big-endian 32-bit integers, and the elements
in row-major order.
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from .errors import broken_file, unreadable

UNSIGNED_BYTE = 8


def decompress(path: Path, limit: int = -1) -> bytes:
    """Return the content of a gzip file, at most `limit` + 1 bytes if a limit is given.

    Raises:
        DataError: the file is missing, unreadable, truncated or corrupt.
    """
    try:
        with gzip.open(path) as file:
            return file.read(limit + 1 if limit >= 0 else -1)
    except EOFError:
        wrong = f"truncated gzip file of {path.stat().st_size} bytes"
    except (gzip.BadGzipFile, zlib.error) as error:
        wrong = f"corrupt gzip file ({error})"
    except OSError as error:
        wrong = unreadable(error)
    raise broken_file(path, wrong, "a whole gzip file")


def read_idx(path: Path, ndim: int) -> np.ndarray:
    """Read unsigned bytes from a gzip-compressed idx file into a read-only array.

    Raises:
        DataError: the file cannot be decompressed, has another magic number or number of dimensions,
            or does not contain the number of elements in its header.
    """
    content = decompress(path)
    header = 4 + 4 * ndim
    magic = bytes([0, 0, UNSIGNED_BYTE, ndim])
    if content[:4] != magic:
        raise broken_file(
            path, f"magic number {content[:4].hex() or 'missing'}", f"{magic.hex()}, idx of {ndim} dimensions"
        )
    if len(content) < header:
        raise broken_file(path, f"content ends after {len(content)} bytes", f"a header of {header} bytes")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", count=ndim, offset=4))
    actual, announced = len(content) - header, math.prod(shape)
    if actual != announced:
        trouble = "trailing bytes: " if actual > announced else "elements are missing: "
        raise broken_file(
            path, f"{trouble}{actual} bytes after the header", f"{announced} for the announced shape {shape}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
