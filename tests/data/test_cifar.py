"""CIFAR's binary files: fetching and loading, with a data set of a few images."""

import dataclasses
import hashlib
import io
import tarfile

import numpy as np
import pytest

from esync.data import DataError, datasets, load
from esync.data.cifar import PIXELS, Archive, CifarEntry
from esync.data.data_file import DataFile
from esync.data.fetch import faults, fetch
from esync.data.registry import CIFAR_10, CIFAR_100


def records(count: int, label_bytes: int, seed: int) -> bytes:
    content = np.random.default_rng(seed).integers(0, 256, (count, PIXELS + label_bytes), dtype=np.uint8)
    content[:, :label_bytes] = 3  # the coarse label
    content[:, label_bytes - 1] = np.arange(count) % 10
    return content.tobytes()


CONTENTS = {"one.bin": records(20, 2, 0), "two.bin": records(10, 2, 1), "test.bin": records(5, 2, 2)}


def binary(name: str) -> DataFile:
    return DataFile(name, len(CONTENTS[name]), hashlib.sha1(CONTENTS[name]).hexdigest())


ENTRY = CifarEntry(
    "cifar-tiny",
    10,
    2,
    (binary("one.bin"), binary("two.bin")),
    (binary("test.bin"),),
    Archive("tiny.tar.gz", 10**6),
    (),
)


@pytest.fixture
def mirror(tmp_path):
    """A folder with the archive, as a URL; its own folders are not to be found again anywhere."""
    with tarfile.open(tmp_path / "tiny.tar.gz", "w:gz") as archive:
        for name, content in {**CONTENTS, "readme.html": b"x"}.items():
            info = tarfile.TarInfo(f"../cifar-tiny-binary/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return tmp_path.as_uri()


def get(data_dir, mirror, entry=ENTRY):
    return fetch(entry, data_dir, mirrors=[mirror], timeout=1, pause=0.01)


def test_fetch_cifar_archive_gives_a_data_set_that_loads(tmp_path, mirror, monkeypatch):
    folder = get(tmp_path / "data", mirror)
    assert {path.name for path in folder.iterdir()} == set(CONTENTS)
    assert faults(ENTRY, tmp_path / "data") == {}
    monkeypatch.setattr(datasets, "find_entry", lambda name: ENTRY)
    data = load("cifar-tiny", tmp_path / "data")
    assert (data.train_images.shape, data.test_images.shape) == ((30, 3, 32, 32), (5, 3, 32, 32))
    assert (data.shape[0], data.classes, ENTRY.training_samples) == (3, 10, 30)
    np.testing.assert_array_equal(data.train_labels[:20], np.arange(20) % 10)  # the fine labels
    assert data.train_images[20].tobytes() == CONTENTS["two.bin"][2 : 2 + PIXELS]


def test_fetch_cifar_replaces_only_broken_files(tmp_path, mirror):
    folder = get(tmp_path / "data", mirror)
    (folder / "two.bin").write_bytes(CONTENTS["two.bin"][:-1] + bytes([CONTENTS["two.bin"][-1] ^ 1]))
    before = (folder / "one.bin").stat().st_mtime_ns
    assert next(iter(faults(ENTRY, tmp_path / "data").values())).startswith("content with SHA-1")
    get(tmp_path / "data", mirror)
    assert faults(ENTRY, tmp_path / "data") == {}
    assert (folder / "one.bin").stat().st_mtime_ns == before


def test_fetch_cifar_archive_without_expected_file_is_refused(tmp_path, mirror):
    entry = dataclasses.replace(ENTRY, test=(dataclasses.replace(ENTRY.test[0], name="other.bin"),))
    with pytest.raises(DataError, match=r"holds no other\.bin"):
        get(tmp_path / "data", mirror, entry)
    (tmp_path / "tiny.tar.gz").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="not a complete archive"):
        get(tmp_path / "again", mirror)
    assert not (tmp_path / "again" / "cifar-tiny").exists()


@pytest.mark.parametrize(
    ("content", "wrong"),
    [(b"", "0 bytes; expected whole records"), (b"x" * 100, "100 bytes"), (b"\xff" * (PIXELS + 2), "label 255")],
)
def test_load_cifar_with_malformed_file_is_refused(tmp_path, mirror, monkeypatch, content, wrong):
    (get(tmp_path / "data", mirror) / "two.bin").write_bytes(content)
    monkeypatch.setattr(datasets, "find_entry", lambda name: ENTRY)
    with pytest.raises(DataError, match=wrong) as caught:
        load("cifar-tiny", tmp_path / "data")
    assert "-d cifar-tiny" in str(caught.value)


def test_cifar_registry_entries_have_the_published_sizes():
    assert (CIFAR_10.training_samples, CIFAR_100.training_samples) == (50_000, 50_000)
    assert (CIFAR_10.test[0].size, CIFAR_100.test[0].size) == (10_000 * 3073, 10_000 * 3074)
