"""Checkpoints after a power failure: one that was announced is on the disk."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from esync.checkpoints.store import CheckpointStore

from ..support.volatile_disk import Choose, VolatileDisk

NAMES = ("model.params", "worker-0.npz")
ROUNDS = 4
#: What an unflushed name or file has become: lost, there, or one or the other.
CHANCES: dict[str, Callable[[], Choose]] = {
    "lost": lambda: lambda possibilities: 0,
    "there": lambda: lambda possibilities: 1,
    **{f"some, {seed}": lambda seed=seed: random.Random(seed).randrange for seed in range(1)},  # type: ignore[misc]
}


class PowerLostError(BaseException):
    """Raised when a process goes on to change the disk after the power has failed.

    Like KeyboardInterrupt, it is not an Exception.
    """


def lasts(steps: int) -> Callable[[], None]:
    """Return what lets so many steps pass, and raises PowerLostError at every later one."""
    remaining_steps = iter(range(steps))

    def step() -> None:
        if next(remaining_steps, None) is None:
            raise PowerLostError

    return step


def content(round_: int, name: str) -> bytes:
    return f"{name} of round {round_} ".encode() * 100


def write(store: CheckpointStore, round_: int) -> None:
    writers = {name: lambda path, name=name: path.write_bytes(content(round_, name)) for name in NAMES}
    store.write(round_, writers, {"job": 1})


def job(directory: Path, done: list[int]) -> None:
    """Write checkpoints and keep one; `done` are the rounds of those that others know of."""
    store = CheckpointStore(directory, 0)
    store.prepare()
    for round_ in range(1, ROUNDS + 1):
        write(store, round_)
        done.append(round_)
        store.keep(1, round_)


def after_a_cut(tmp_path: Path, steps: int, chance: str) -> tuple[list[int], CheckpointStore, bool]:
    """Return the rounds of known checkpoints, what is left, and whether the power has failed."""
    done, failed = list[int](), False
    with VolatileDisk(tmp_path, lasts(steps)) as disk:
        try:
            with disk.attached():
                job(tmp_path / "runs" / "kept", done)
        except PowerLostError:
            failed = True
        disk.lose_power(CHANCES[chance]())
    return done, CheckpointStore(tmp_path / "runs" / "kept", 0), failed


@pytest.mark.parametrize("chance", CHANCES)
def test_announced_checkpoint_survives_power_loss_at_every_step(tmp_path, chance, caplog):
    failed, steps = True, 0
    while failed:
        (tmp_path / str(steps)).mkdir()
        done, store, failed = after_a_cut(tmp_path / str(steps), steps, chance)
        store.prepare()
        assert not list(store.directory.rglob(".*")), "half-written files are left"
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
def test_rewritten_part_is_never_a_mixture_after_power_loss(tmp_path, chance, caplog):
    failed, steps = True, 0
    while failed:
        root = tmp_path / str(steps)
        root.mkdir()
        store = CheckpointStore(root, 0)
        write(store, 1)
        failed = False
        with VolatileDisk(root, lasts(steps)) as disk:
            try:
                with disk.attached():
                    store.write(1, {name: lambda path: path.write_bytes(b"again") for name in NAMES}, {"job": 2})
            except PowerLostError:
                failed = True
            disk.lose_power(CHANCES[chance]())
        for part in store.parts():
            expected = {name: b"again" if part.facts["job"] == 2 else content(1, name) for name in NAMES}
            assert {name: part.file(name).read_bytes() for name in NAMES} == expected
        steps += 1
    assert part.facts["job"] == 2
    assert "damaged" not in caplog.text


@pytest.mark.parametrize("chance", CHANCES)
def test_overwritten_run_does_not_return_after_power_loss(tmp_path, chance):
    """With --overwrite; otherwise a later --resume would continue the old run."""
    store, other_store = CheckpointStore(tmp_path, 0), CheckpointStore(tmp_path, 1)
    for round_ in (10, 20):
        write(store, round_)
        other_store.write(round_, {}, {"job": 1})
    with VolatileDisk(tmp_path) as disk:
        with disk.attached():
            store.remove(lambda round_: True)
        disk.lose_power(CHANCES[chance]())
    assert store.parts() == []
    assert [part.round for part in other_store.parts()] == [20, 10]
