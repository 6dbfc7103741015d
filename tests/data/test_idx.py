import gzip

import numpy as np
import pytest
from tiny_dataset import idx_bytes

from esync.data import DataError
from esync.data.idx import decompress, read_idx

ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
GOOD = idx_bytes(ARRAY)


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "data dir" / "fashion-mnist"
    folder.mkdir(parents=True)
    return folder / "images.gz"


def test_read_idx_returns_what_was_written(path):
    path.write_bytes(gzip.compress(GOOD))
    array = read_idx(path, ndim=3)
    assert array.dtype == np.uint8
    np.testing.assert_array_equal(array, ARRAY)
    assert not array.flags.writeable


BROKEN = {
    "no file": (None, "no such file"),
    "empty": (b"", "magic number missing"),
    "not gzip": (GOOD, "corrupt gzip"),
    "truncated gzip": (gzip.compress(GOOD)[:-9], "truncated gzip file of"),
    "wrong checksum": (gzip.compress(GOOD)[:-8] + bytes(4) + gzip.compress(GOOD)[-4:], "corrupt gzip"),
    "corrupt deflate": (gzip.compress(GOOD)[:10] + b"\xff" * 30, "corrupt gzip"),
    "bytes after the gzip stream": (gzip.compress(GOOD) + b"more", "corrupt gzip"),
    "another element type": (gzip.compress(b"\0\0\x0d" + GOOD[3:]), "magic number 00000d03; expected 00000803"),
    "another number of dimensions": (gzip.compress(idx_bytes(ARRAY[0])), "magic number 00000802; expected 00000803"),
    "ends in the header": (gzip.compress(GOOD[:10]), "content ends after 10 bytes; expected a header of 16"),
    "elements missing": (gzip.compress(GOOD[:-1]), "elements are missing: 23 bytes after the header; expected 24"),
    "trailing bytes": (gzip.compress(GOOD + b"x"), "trailing bytes: 25 bytes after the header; expected 24"),
    "absurd dimensions": (gzip.compress(GOOD[:4] + b"\xff" * 12 + GOOD[16:]), "elements are missing"),
}


@pytest.mark.parametrize(("content", "wrong"), BROKEN.values(), ids=BROKEN.keys())
def test_read_idx_with_broken_file_names_the_file_and_the_remedy(path, content, wrong):
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_idx(path, ndim=3)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert wrong in message
    assert "expected" in message
    assert f"python -m esync.data fetch --to '{path.parent.parent}'" in message


def test_read_idx_with_directory_in_place_of_the_file_is_refused(path):
    path.mkdir()
    with pytest.raises(DataError, match="unreadable"):
        read_idx(path, ndim=3)


def test_decompress_with_limit_stops_after_it(path):
    path.write_bytes(gzip.compress(bytes(10_000)))
    assert len(decompress(path, limit=100)) == 101
    assert len(decompress(path, limit=10_000)) == 10_000
