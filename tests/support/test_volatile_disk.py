"""The simulated volatile disk loses what was not flushed, and nothing else."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from esync.runtime.files import atomic_path, flush_folder, write_atomically

from .volatile_disk import Choose, VolatileDisk


def left_of(root: Path, work: Callable[[Path], object], choose: Choose = lambda possibilities: 0) -> dict[str, bytes]:
    """Return the files that are left of actions in a new folder.

    A file `old` in it is on the disk already.
    """
    root.mkdir(parents=True)
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


def create(root: Path) -> None:
    (root / "new").write_bytes(b"new")


def rename(root: Path) -> None:
    write_atomically(root / "old", b"new")


def rename_unflushed(root: Path) -> None:
    (root / "beside").write_bytes(b"new")
    os.replace(root / "beside", root / "old")


def rename_in_unflushed_folder(root: Path) -> None:
    with atomic_path(root / "old") as beside:
        beside.write_bytes(b"new")


def delete(root: Path) -> None:
    (root / "old").unlink()


def make_folder(root: Path) -> None:
    (root / "inner").mkdir()
    write_atomically(root / "inner" / "new", b"new")
    flush_folder(root / "inner")


def delete_folder(root: Path) -> None:
    make_folder(root)
    flush_folder(root)
    (root / "inner" / "new").unlink()
    (root / "inner").rmdir()


OLD, NEW = {"old": b"old"}, {"old": b"new"}
INNER = {"old": b"old", "inner/new": b"new"}


@pytest.mark.parametrize(
    ("work", "nothing_unflushed", "everything", "with_flushed_names"),
    [
        (create, OLD, {"old": b"old", "new": b"new"}, {"old": b"old", "new": b""}),
        (rename_in_unflushed_folder, OLD, NEW, NEW),
        (rename_unflushed, OLD, NEW, {"old": b""}),
        (delete, OLD, {}, {}),
        (make_folder, OLD, INNER, INNER),
        (delete_folder, INNER, OLD, OLD),
    ],
)
def test_volatile_disk_may_lose_what_was_not_flushed(
    tmp_path: Path,
    work: Callable[[Path], None],
    nothing_unflushed: dict[str, bytes],
    everything: dict[str, bytes],
    with_flushed_names: dict[str, bytes],
) -> None:
    """`with_flushed_names`: the least that is left where the folder has been flushed."""
    assert left_of(tmp_path / "lost", work) == nothing_unflushed
    assert left_of(tmp_path / "there", work, lambda possibilities: 1) == everything
    assert left_of(tmp_path / "flushed", lambda root: (work(root), flush_folder(root))) == with_flushed_names


def test_volatile_disk_may_keep_any_part_of_what_was_not_flushed(tmp_path: Path) -> None:
    states = outcomes(tmp_path / "names", lambda root: (delete(root), (root / "new").touch()))
    assert {tuple(name for name, _ in outcome) for outcome in states} == {(), ("old",), ("new",), ("new", "old")}
    states = outcomes(tmp_path / "contents", lambda root: (create(root), flush_folder(root)))
    assert {dict(outcome)["new"] for outcome in states} == {b"", b"n", b"ne", b"new"}
    assert outcomes(tmp_path / "flushed", lambda root: (rename(root), flush_folder(root))) == {(("old", b"new"),)}


def test_volatile_disk_keeps_the_outcome_of_an_earlier_power_loss(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with VolatileDisk(root) as disk:
        with disk.attached():
            (root / "new").write_bytes(b"new")
        disk.lose_power(lambda possibilities: 1)
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
