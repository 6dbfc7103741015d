"""The simulated volatile disk loses what was not flushed, and nothing else."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from esync.runtime.files import atomic_path, flush_folder, write_atomically

from .volatile_disk import Choose, VolatileDisk


def lost(possibilities: int) -> int:
    """Nothing that was not flushed is left."""
    return 0


def there(possibilities: int) -> int:
    """Everything is left."""
    return 1


def left_of(root: Path, work: Callable[[Path], object], choose: Choose = lost) -> dict[str, bytes]:
    """Return the files that are left of actions in a new folder.

    A file `old` in it is on the disk already.
    """
    root.mkdir()
    (root / "old").write_bytes(b"old")
    with VolatileDisk(root) as disk:
        with disk.attached():
            work(root)
        disk.lose_power(choose)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def outcomes(folder: Path, work: Callable[[Path], object]) -> set[tuple[tuple[str, bytes], ...]]:
    """Return what may be left, as chance says."""
    seeds = range(60)
    return {tuple(sorted(left_of(folder / str(seed), work, random.Random(seed).randrange).items())) for seed in seeds}


def test_volatile_disk_may_lose_an_unflushed_file(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        (root / "new").write_bytes(b"new")

    assert left_of(tmp_path / "lost", work) == {"old": b"old"}
    assert left_of(tmp_path / "there", work, there) == {"old": b"old", "new": b"new"}


def test_volatile_disk_may_keep_a_name_and_lose_part_of_its_contents(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        (root / "new").write_bytes(b"new")
        flush_folder(root)

    assert left_of(tmp_path / "lost", work) == {"old": b"old", "new": b""}
    assert {dict(outcome)["new"] for outcome in outcomes(tmp_path, work)} == {b"", b"n", b"ne", b"new"}


def test_volatile_disk_may_lose_an_unflushed_rename(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        with atomic_path(root / "old") as beside:
            beside.write_bytes(b"new")

    assert left_of(tmp_path / "lost", work) == {"old": b"old"}
    assert left_of(tmp_path / "there", work, there) == {"old": b"new"}


def test_volatile_disk_keeps_a_flushed_rename(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        write_atomically(root / "old", b"new")
        flush_folder(root)

    assert outcomes(tmp_path, work) == {(("old", b"new"),)}


def test_volatile_disk_may_empty_a_renamed_file_that_was_not_flushed(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        (root / "beside").write_bytes(b"new")
        os.replace(root / "beside", root / "old")
        flush_folder(root)

    assert left_of(tmp_path / "lost", work) == {"old": b""}


def test_volatile_disk_may_undo_an_unflushed_deletion(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        (root / "old").unlink()

    assert left_of(tmp_path / "lost", work) == {"old": b"old"}
    assert left_of(tmp_path / "flushed", lambda root: (work(root), flush_folder(root))) == {}


def test_volatile_disk_may_keep_any_subset_of_several_changes(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        (root / "old").unlink()
        (root / "new").touch()

    names = {tuple(name for name, _ in outcome) for outcome in outcomes(tmp_path, work)}
    assert names == {(), ("old",), ("new",), ("new", "old")}


def test_volatile_disk_may_lose_an_unflushed_folder_with_its_files(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        (root / "inner").mkdir()
        write_atomically(root / "inner" / "new", b"new")
        flush_folder(root / "inner")

    assert left_of(tmp_path / "lost", work) == {"old": b"old"}
    flushed = left_of(tmp_path / "flushed", lambda root: (work(root), flush_folder(root)))
    assert flushed == {"old": b"old", "inner/new": b"new"}


def test_volatile_disk_may_restore_a_deleted_folder_with_its_files(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        (root / "inner").mkdir()
        write_atomically(root / "inner" / "new", b"new")
        flush_folder(root / "inner")
        flush_folder(root)
        (root / "inner" / "new").unlink()
        (root / "inner").rmdir()

    assert left_of(tmp_path / "lost", work) == {"old": b"old", "inner/new": b"new"}
    assert left_of(tmp_path / "there", work, there) == {"old": b"old"}


def test_volatile_disk_keeps_the_outcome_of_an_earlier_power_loss(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with VolatileDisk(root) as disk:
        with disk.attached():
            (root / "new").write_bytes(b"new")
        disk.lose_power(there)
        disk.lose_power()
    assert (root / "new").read_bytes() == b"new"


def test_volatile_disk_stopped_before_a_step_has_not_done_it(tmp_path: Path) -> None:
    allowed = iter(range(3))

    def step() -> None:
        if next(allowed, None) is None:
            raise KeyboardInterrupt

    with VolatileDisk(tmp_path, step) as disk, disk.attached():
        write_atomically(tmp_path / "file", b"1")  # flushes, renames
        with pytest.raises(KeyboardInterrupt):
            write_atomically(tmp_path / "file", b"2")
    assert (tmp_path / "file").read_bytes() == b"1"
