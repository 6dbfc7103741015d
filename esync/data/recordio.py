"""Images in MXNet's RecordIO files, as tools/im2rec.py writes them: rec:FILE. Read without MXNet.

A record is the magic number, one word whose upper 3 bits say which part of a record follows (0:
all, 1: the first, 2: a middle one, 3: the last; it is cut where its content has the magic number)
and whose others are the length in bytes, and the content, filled up to whole words. The content is
a header (flag, label, id, second id) and an encoded image.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .errors import DataError
from .image_array import ImageArray
from .user_arrays import LabeledSamples, UserArrays, check_arrays

MAGIC = struct.pack("<I", 0xCED7230A)
HEADER = struct.Struct("<IfQQ")
TRAIN, TEST = "_train", ("_test", "_val")
LAYOUT = "NAME_train.rec and NAME_test.rec (or NAME_val.rec), or one file NAME.rec"


def find_files(path: Path) -> tuple[Path, Path | None]:
    """Return the files of the training and the test set, given NAME, NAME.rec or NAME_train.rec.

    Raises:
        DataError: no such file exists.
    """
    base = str(path).removesuffix(".rec")
    train = Path(f"{base}.rec")
    if not train.is_file() and not base.endswith(TRAIN):
        train = Path(f"{base}{TRAIN}.rec")
    if not train.is_file():
        raise DataError(path, "no such RecordIO file", expected=LAYOUT)
    name = str(train).removesuffix(".rec")
    candidates = [Path(f"{name.removesuffix(TRAIN)}{end}.rec") for end in TEST if name.endswith(TRAIN)]
    return train, next((candidate for candidate in candidates if candidate.is_file()), None)


def load_rec(path: Path) -> UserArrays:
    """Read a data set.

    Raises:
        DataError: a file is truncated or not RecordIO, or has an invalid image or label.
    """
    train, test = find_files(path)
    images, samples = _read(train)
    return check_arrays(str(train), samples, _read(test, images)[1] if test is not None else None)


def _read(path: Path, like: ImageArray | None = None) -> tuple[ImageArray, LabeledSamples]:
    records = list(_records(path))
    index = path.with_suffix(".idx")
    if index.is_file() and (lines := len(index.read_text(errors="replace").splitlines())) != len(records):
        raise DataError(path, f"{len(records)} records", expected=f"{lines}, as many as lines of {index.name}")
    if not records:
        raise DataError(path, "no records", expected="one or more")
    images, labels = ImageArray(path, len(records), like), []
    for number, record in enumerate(records):
        origin = f"{path}, record {number}"
        if len(record) < HEADER.size:
            raise DataError(origin, f"{len(record)} bytes", expected=f"a header of {HEADER.size} bytes and an image")
        flag, label, _, _ = HEADER.unpack_from(record)
        if flag:
            raise DataError(origin, f"{flag} labels", expected="one label, the number of the class")
        if not label.is_integer() or label < 0:  # NaN and infinity are not integers
            raise DataError(origin, f"label {label:g}", expected="0, 1, …, one for each class")
        labels.append(int(label))
        images.add(origin, record[HEADER.size :])
    return images, (images.pixels, np.array(labels))


def _records(path: Path) -> Iterator[bytes]:
    """Yield the contents of a file's records."""
    try:
        with open(path, "rb") as file:
            parts: list[bytes] = []
            while head := file.read(8):
                offset = file.tell() - len(head)
                if len(head) < 8 or head[:4] != MAGIC:
                    raise DataError(path, f"no record begins at byte {offset}", expected="a whole RecordIO file")
                word = struct.unpack("<I", head[4:])[0]
                part, size = word >> 29, word & ((1 << 29) - 1)
                content = file.read(-size % 4 + size)
                if len(content) < size:
                    raise DataError(path, f"truncated in the record at byte {offset}", expected="a whole RecordIO file")
                parts.append(content[:size])
                if part in (0, 3):
                    yield MAGIC.join(parts)
                    parts = []
            if parts:
                raise DataError(path, "truncated: the last record has no end", expected="a whole RecordIO file")
    except OSError as error:
        raise DataError(path, f"unreadable ({error.strerror})", expected=LAYOUT) from None
