"""What is on the disk when the power fails: a checkpoint that was said to be there is there."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from esync.checkpoint.store import Store
from esync.files import flush_folder, whole

from .power import Choose, Power, PowerLostError, VolatileDisk

NAMES = ("model.params", "worker-0.npz")
ROUNDS = 4
#: What an unflushed name or file has become: lost, there, or one or the other.
CHANCES: dict[str, Callable[[], Choose]] = {
    "lost": lambda: lambda possibilities: 0,
    "there": lambda: lambda possibilities: 1,
    **{f"some, {seed}": lambda seed=seed: random.Random(seed).randrange for seed in range(5)},  # type: ignore[misc]
}


def content(round_: int, name: str) -> bytes:
    return f"{name} of round {round_} ".encode() * 100


def write(store: Store, round_: int) -> None:
    writers = {name: lambda path, name=name: path.write_bytes(content(round_, name)) for name in NAMES}
    store.write(round_, writers, {"job": 1})


def job(directory: Path, done: list[int]) -> None:
    """Writes checkpoints and keeps one; `done` are the rounds of those that others have been told of."""
    store = Store(directory, 0)
    store.prepare()
    for round_ in range(1, ROUNDS + 1):
        write(store, round_)
        done.append(round_)
        store.keep(1, round_)


def after_a_cut(tmp_path: Path, steps: int, chance: str) -> tuple[list[int], Store, bool]:
    """The rounds that were said to be there, what is left, and whether the power has failed at all."""
    root = tmp_path / "disk"
    root.mkdir()
    disk, done, power, failed = VolatileDisk(root), list[int](), Power(steps), False
    try:
        with disk.listening(power.step):
            job(root / "runs" / "kept", done)
    except PowerLostError:
        failed = True
    left = tmp_path / "left"
    disk.cut(left, CHANCES[chance]())
    disk.close()
    return done, Store(left / "runs" / "kept", 0), failed


@pytest.mark.parametrize("chance", CHANCES)
def test_a_checkpoint_that_others_were_told_of_outlives_the_power_at_every_step(tmp_path, chance, caplog):
    failed, steps = True, 0
    while failed:
        (tmp_path / str(steps)).mkdir()
        done, store, failed = after_a_cut(tmp_path / str(steps), steps, chance)
        store.prepare()
        parts = store.parts()
        newest = max((part.round for part in parts), default=0)
        assert newest in (max(done, default=0), max(done, default=0) + 1), steps
        for part in parts:
            for name in NAMES:
                assert part.file(name).read_bytes() == content(part.round, name)
        steps += 1
    assert steps > 40
    assert "damaged" not in caplog.text


@pytest.mark.parametrize("chance", CHANCES)
def test_a_part_that_is_written_again_is_at_no_step_a_mixture(tmp_path, chance, caplog):
    failed, steps = True, 0
    while failed:
        root = tmp_path / str(steps) / "disk"
        root.mkdir(parents=True)
        store = Store(root, 0)
        write(store, 1)
        disk, failed = VolatileDisk(root), False
        try:
            with disk.listening(Power(steps).step):
                store.write(1, {name: lambda path: path.write_bytes(b"again") for name in NAMES}, {"job": 2})
        except PowerLostError:
            failed = True
        left = root.parent / "left"
        disk.cut(left, CHANCES[chance]())
        disk.close()
        for part in Store(left, 0).parts():
            expected = {name: b"again" if part.facts["job"] == 2 else content(1, name) for name in NAMES}
            assert {name: part.file(name).read_bytes() for name in NAMES} == expected
        steps += 1
    assert part.facts["job"] == 2
    assert "damaged" not in caplog.text


@pytest.mark.parametrize("chance", CHANCES)
def test_what_was_deleted_to_begin_anew_does_not_come_back(tmp_path, chance):
    """--overwrite: else a later --resume would go on with the old run."""
    root = tmp_path / "disk"
    root.mkdir()
    others = Store(root, 1)
    for round_ in (10, 20):
        write(Store(root, 0), round_)
        others.write(round_, {}, {"job": 1})
    disk = VolatileDisk(root)
    with disk.listening():
        Store(root, 0).remove(lambda round_: True)
    disk.cut(tmp_path / "left", CHANCES[chance]())
    disk.close()
    assert Store(tmp_path / "left", 0).parts() == []
    assert [part.round for part in Store(tmp_path / "left", 1).parts()] == [20, 10]


# --- the disk itself: it loses what it says it loses ------------------------------------------------------------------


def left_of(tmp_path: Path, work: Callable[[Path], object], chance: str = "lost") -> dict[str, bytes]:
    """The files that are left of what was done in a folder with a file `old` that is on the disk."""
    root = tmp_path / "disk"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    disk = VolatileDisk(root)
    with disk.listening():
        work(root)
    disk.cut(tmp_path / "left", CHANCES[chance]())
    disk.close()
    left = tmp_path / "left"
    return {str(path.relative_to(left)): path.read_bytes() for path in left.rglob("*") if path.is_file()}


def test_a_file_that_was_not_flushed_is_lost(tmp_path):
    assert left_of(tmp_path, lambda root: (root / "new").write_bytes(b"new")) == {"old": b"old"}


def test_it_may_be_there_all_the_same(tmp_path):
    assert left_of(tmp_path, lambda root: (root / "new").write_bytes(b"new"), "there") == {"old": b"old", "new": b"new"}


def test_a_name_outlives_its_contents(tmp_path):
    def work(root: Path) -> None:
        (root / "new").write_bytes(b"new")
        flush_folder(root)

    assert left_of(tmp_path, work) == {"old": b"old", "new": b""}


def test_a_rename_that_was_not_flushed_is_lost(tmp_path):
    def work(root: Path) -> None:
        with whole(root / "old") as beside:
            beside.write_bytes(b"new")

    assert left_of(tmp_path, work) == {"old": b"old"}


def test_a_rename_that_was_flushed_is_not(tmp_path):
    def work(root: Path) -> None:
        with whole(root / "old") as beside:
            beside.write_bytes(b"new")
        flush_folder(root)

    assert left_of(tmp_path, work) == {"old": b"new"}


def test_a_rename_of_what_was_not_flushed_leads_to_nothing(tmp_path):
    def work(root: Path) -> None:
        (root / "beside").write_bytes(b"new")
        os.replace(root / "beside", root / "old")
        flush_folder(root)

    assert left_of(tmp_path, work) == {"old": b""}


def test_a_deletion_that_was_not_flushed_comes_back(tmp_path):
    assert left_of(tmp_path, lambda root: (root / "old").unlink()) == {"old": b"old"}
    (tmp_path / "other").mkdir()
    assert left_of(tmp_path / "other", lambda root: ((root / "old").unlink(), flush_folder(root))) == {}


def test_a_folder_is_lost_with_all_that_is_flushed_in_it(tmp_path):
    def work(root: Path) -> None:
        (root / "inner").mkdir()
        with whole(root / "inner" / "new") as beside:
            beside.write_bytes(b"new")
        flush_folder(root / "inner")

    assert left_of(tmp_path, work) == {"old": b"old"}
    (tmp_path / "other").mkdir()
    flushed = left_of(tmp_path / "other", lambda root: (work(root), flush_folder(root)))
    assert flushed == {"old": b"old", "inner/new": b"new"}
