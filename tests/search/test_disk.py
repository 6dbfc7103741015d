"""What a power cut leaves of files that were written in the ways that there are."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from esync.files import flush_folder, write_whole

from .disk import Disk


def nothing() -> None:
    """Files are written without anything in between."""


def outcomes(tmp_path: Path, write: Callable[[Path], object], cuts: int = 40) -> set[str]:
    """What may be in the file "f" after a power cut: its content, which may be empty, or "-" where there is no file."""
    found = set()
    for seed in range(cuts):
        disk = Disk(tmp_path / str(seed), nothing)
        with disk.attached():
            write_whole(disk.root / "f", b"old")
            flush_folder(disk.root)
            write(disk.root)
        disk.lose_power(random.Random(seed))
        path = disk.root / "f"
        found.add(path.read_text() if path.exists() else "-")
    return found


def test_a_file_whose_folder_was_flushed_is_there(tmp_path: Path) -> None:
    def write(root: Path) -> None:
        write_whole(root / "f", b"new")
        flush_folder(root)

    assert outcomes(tmp_path, write) == {"new"}


def test_a_name_that_was_not_flushed_may_be_lost(tmp_path: Path) -> None:
    assert outcomes(tmp_path, lambda root: write_whole(root / "f", b"new")) == {"old", "new"}
    assert outcomes(tmp_path / "deleted", lambda root: (root / "f").unlink()) == {"old", "-"}


def test_a_file_that_was_not_flushed_may_be_cut_or_lost(tmp_path: Path) -> None:
    def write(root: Path) -> None:
        (root / "beside").write_bytes(b"new")
        os.replace(root / "beside", root / "f")
        flush_folder(root)

    assert outcomes(tmp_path, write) == {"-", "", "n", "ne", "new"}


def test_a_folder_that_was_not_flushed_is_lost_with_what_is_in_it(tmp_path: Path) -> None:
    def there(flushed: bool) -> set[bool]:
        found = set()
        for seed in range(20):
            disk = Disk(tmp_path / f"{flushed} {seed}", nothing)
            with disk.attached():
                (disk.root / "folder").mkdir()
                write_whole(disk.root / "folder" / "f", b"content")
                flush_folder(disk.root / "folder")
                if flushed:
                    flush_folder(disk.root)
            disk.lose_power(random.Random(seed))
            found.add((disk.root / "folder" / "f").exists())
        return found

    assert there(flushed=True) == {True}
    assert False in there(flushed=False)


def test_a_folder_that_was_deleted_may_come_back_with_its_files(tmp_path: Path) -> None:
    found = set()
    for seed in range(40):
        disk = Disk(tmp_path / str(seed), nothing)
        with disk.attached():
            (disk.root / "folder").mkdir()
            write_whole(disk.root / "folder" / "f", b"content")
            flush_folder(disk.root / "folder")
            flush_folder(disk.root)
            (disk.root / "folder" / "f").unlink()
            (disk.root / "folder").rmdir()
        disk.lose_power(random.Random(seed))
        found.add((disk.root / "folder").exists() and (disk.root / "folder" / "f").exists())
    assert found == {True, False}


def test_whoever_is_stopped_before_a_step_has_not_done_it(tmp_path: Path) -> None:
    allowed = iter(range(3))

    def step() -> None:
        if next(allowed, None) is None:
            raise KeyboardInterrupt

    disk = Disk(tmp_path, step)
    with disk.attached():
        write_whole(disk.root / "f", b"1")  # flushes, renames
        with pytest.raises(KeyboardInterrupt):
            write_whole(disk.root / "f", b"2")
    assert (disk.root / "f").read_bytes() == b"1"
