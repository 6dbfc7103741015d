from pathlib import Path

import pytest

from esync.checkpoints.store import CheckpointError, CheckpointStore


def make_store(directory: Path, rank: int) -> CheckpointStore:
    store = CheckpointStore(directory, rank)
    store.prepare()
    return store


def write(store: CheckpointStore, round_: int, **files: str) -> None:
    store.write(round_, {name: lambda path, text=text: path.write_text(text) for name, text in files.items()}, {})


def rounds(store: CheckpointStore) -> list[int]:
    return [part.round for part in store.parts()]


def names(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_store_finds_a_part_as_it_was_written(tmp_path):
    store = make_store(tmp_path / "new", 3)
    store.write(7, {"worker-3.npz": lambda path: path.write_text("arrays")}, {"job": 2**62, "state": [1.5, None]})
    (part,) = CheckpointStore(tmp_path / "new", 3).parts()
    assert (part.round, part.facts["job"], part.facts["state"]) == (7, 2**62, [1.5, None])
    assert part.file("worker-3.npz").read_text() == "arrays"
    assert part.file("server.npz") is None


def test_store_lists_the_newest_round_first(tmp_path):
    store = make_store(tmp_path, 0)
    for round_ in (9, 100, 10):
        write(store, round_)
    assert rounds(store) == [100, 10, 9]


@pytest.mark.parametrize(
    ("complete_round", "expected_rounds"),
    [(5, [5, 4]), (4, [5, 4, 3]), (3, [5, 4, 3, 2]), (1, [5, 4, 3, 2, 1]), (0, [5, 4, 3, 2, 1])],
)
def test_store_keep_deletes_only_what_is_older_than_a_whole_checkpoint(tmp_path, complete_round, expected_rounds):
    store = make_store(tmp_path, 0)
    for round_ in range(1, 6):
        write(store, round_, **{"model.params": "m", "server.npz": "s"})
    store.keep(2, complete_round)
    assert rounds(store) == expected_rounds
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"round-{round_}" for round_ in reversed(expected_rounds)
    ]


def test_store_keep_deletes_half_written_files_of_dead_workers(tmp_path):
    store = make_store(tmp_path, 0)
    for round_ in range(1, 5):
        write(store, round_, **{"model.params": "m"})
    for round_ in (2, 4):
        (tmp_path / f"round-{round_}" / "worker-0.json").unlink()
    store.keep(1, 3)
    assert names(tmp_path) == {"round-3/model.params", "round-3/worker-0.json", "round-4/model.params"}


def test_store_keep_leaves_parts_of_other_workers_alone(tmp_path):
    stores = [make_store(tmp_path, rank) for rank in (0, 1, 10)]
    for store in stores:
        for round_ in (1, 2):
            write(store, round_, **{f"worker-{store.rank}.npz": "x"})
    stores[1].keep(1, 2)
    stores[1].prepare()
    stores[0].remove(lambda round_: round_ == 2)
    assert [rounds(store) for store in stores] == [[1], [2], [2, 1]]
    assert names(tmp_path) == {
        *("round-1/worker-0.json", "round-1/worker-0.npz", "round-2/worker-1.json", "round-2/worker-1.npz"),
        *(f"round-{round_}/worker-10.{kind}" for round_ in (1, 2) for kind in ("json", "npz")),
    }


def test_store_recreates_a_folder_that_another_worker_deleted(tmp_path, monkeypatch):
    """A replacement once deleted the empty folder that another worker had just created."""
    store, replacement = make_store(tmp_path, 0), make_store(tmp_path, 1)
    mkdir, meanwhile = Path.mkdir, iter([replacement.prepare])

    def then_the_newcomer(path, *arguments, **options):
        mkdir(path, *arguments, **options)
        if path.parent == tmp_path:
            next(meanwhile, lambda: None)()

    monkeypatch.setattr(Path, "mkdir", then_the_newcomer)
    write(store, 1, **{"model.params": "m"})
    assert rounds(store) == [1]
    assert names(tmp_path) == {"round-1/worker-0.json", "round-1/model.params"}


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("model.params", lambda path: path.write_text("wrong")),
        ("model.params", lambda path: path.write_text("short")),
        ("model.params", Path.unlink),
        ("worker-0.json", lambda path: path.write_text(path.read_text()[:-20])),
        ("worker-0.json", lambda path: path.write_text(path.read_text().replace('"job": 5', '"job": 6'))),
        ("worker-0.json", lambda path: path.write_text(path.read_text().replace('"format": 2', '"format": 1'))),
        ("worker-0.json", lambda path: path.write_text("[]")),
    ],
)
def test_store_leaves_out_a_damaged_part_with_a_warning(tmp_path, caplog, name, spoil):
    store = make_store(tmp_path, 0)
    for round_ in (1, 2):
        store.write(round_, {"model.params": lambda path: path.write_text("right")}, {"job": 5})
    spoil(tmp_path / "round-2" / name)
    assert rounds(store) == [1]
    assert "a checkpoint is damaged and left out" in caplog.text
    assert str(tmp_path / "round-2" / name) in caplog.text
    spoil(tmp_path / "round-1" / name)
    with pytest.raises(CheckpointError, match="every checkpoint is damaged"):
        store.parts()


def test_store_write_that_fails_keeps_the_previous_part(tmp_path):
    store = make_store(tmp_path, 0)
    write(store, 1, **{"model.params": "good"})

    def full(path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="round-2: No space left on device"):
        store.write(2, {"model.params": full}, {})
    assert rounds(store) == [1]
    assert names(tmp_path) == {"round-1/model.params", "round-1/worker-0.json"}


def test_store_in_folder_that_cannot_be_created_is_refused():
    with pytest.raises(CheckpointError, match="cannot write checkpoints to /proc/here: "):
        CheckpointStore(Path("/proc/here"), 0).prepare()
