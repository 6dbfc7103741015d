"""Logged runs: loaded from whatever layout, with the summary as a cache of the round files."""

import os
from pathlib import Path

import pytest
from log_trees import esync_round, summarize_logs, write_round, write_run

from esync.reports import runs
from esync.reports.runs import RunError, find_runs, load_network, load_run
from esync.runtime import run_names
from tests.support.json_files import change_json

DEVICES = {"cloud1/gpu0": 0.5, "cloud1/cpu": 2.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """That of a run."""
    folder = tmp_path / "lenet/esync"
    write_run(folder, DEVICES, 30)
    return folder


@pytest.fixture
def rounds_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the rounds that are read from their files."""
    read: list[int] = []
    original = runs.read_rounds

    def counted(folder, devices, *arguments):
        read.extend(number for device in devices for number in device.rounds)
        return original(folder, devices, *arguments)

    monkeypatch.setattr(runs, "read_rounds", counted)
    return read


def test_a_run_is_loaded_with_its_facts_and_figures(tmp_path: Path) -> None:
    folder = tmp_path / "lenet/esync-niid@base"
    write_run(folder, DEVICES, 60)
    run = load_run(folder)
    assert (run.label, run.name, run.network, run.facts["rank"]) == ("ESync, base non-i.i.d.", "base", "lenet", 0)
    assert list(run.devices) == ["cloud1/cpu", "cloud1/gpu0"]
    assert (run.mode.name, run.mode.iid, run.mode.built_in) == ("esync", False, True)
    assert run.figures.efficiency is not None
    assert run.figures.time_to_target == load_run(folder, 0.8).figures.time_to_target
    early, late = (run.with_target(target).figures.time_to_target for target in (0.2, 0.4))
    assert early < late


def test_layouts_of_a_worker_by_hand(tmp_path: Path) -> None:
    write_run(tmp_path / "esync", DEVICES, 30)
    host = load_run(tmp_path / "esync/cloud1")
    device = load_run(tmp_path / "esync/cloud1/gpu0")
    assert list(host.devices) == ["cloud1/cpu", "cloud1/gpu0"]
    assert list(device.devices) == ["cloud1/gpu0"]
    assert host.mode.name == device.mode.name == "esync"
    assert not list((tmp_path / "esync/cloud1").glob("*.json"))


def test_current_summary_takes_the_place_of_the_rounds(folder: Path, rounds_read: list[int]) -> None:
    first = load_run(folder)
    assert rounds_read
    rounds_read.clear()
    assert load_run(folder).summary == first.summary
    assert not rounds_read


@pytest.mark.parametrize("change", ["another round", "a late accuracy", "same size", "a round less", "run.json"])
def test_summary_that_is_not_current_is_made_anew(folder: Path, change: str, rounds_read: list[int]) -> None:
    before = load_run(folder)
    rounds_read.clear()
    gpu, last = folder / "cloud1/gpu0", len(before.devices["cloud1/gpu0"].rounds_list)
    summary = next(folder.glob("*.json"))
    match change:
        case "another round":
            write_round(gpu, last + 1, esync_round(last + 1, 99.0))
            _age(gpu / f"iter-{last + 1}.txt", summary, -1)  # a copy keeps no times
        case "a late accuracy":
            write_round(gpu, last, esync_round(last, 29.0, accuracy=0.123))
            _age(gpu / f"iter-{last}.txt", summary, -1)
        case "same size":
            text = (gpu / "iter-1.txt").read_text()
            (gpu / "iter-1.txt").write_text(text.replace('"num_samples": 256', '"num_samples": 266'))
            _age(gpu / "iter-1.txt", summary, +1)
        case "a round less":
            (gpu / f"iter-{last}.txt").unlink()
        case "run.json":
            change_json(gpu / "run.json", seed=7)
    after = load_run(folder)
    assert rounds_read
    assert after.summary != before.summary


def _age(path: Path, other: Path, seconds: int) -> None:
    """Set the time of a file to some seconds after another file's."""
    at = other.stat().st_mtime + seconds
    os.utime(path, (at, at))


def test_files_left_out_are_named_every_time(folder: Path) -> None:
    write_round(folder / "cloud1/cpu", 2, "{")
    for _ in range(2):
        assert "iter-2.txt" in str(load_run(folder).problems)


def test_what_is_wrong_with_the_rounds_is_said_every_time(folder: Path, rounds_read: list[int]) -> None:
    gpu = folder / "cloud1/gpu0"
    (gpu / "iter-2.txt").unlink()
    (gpu / "iter-3.txt.bak").touch()
    write_round(gpu, 4, esync_round(4, 0.5))
    first = load_run(folder).problems
    rounds_read.clear()
    assert load_run(folder).problems == first
    assert not rounds_read
    for message in ("iter-2.txt missing", "iter-3.txt.bak: not named", "files of two runs?"):
        assert message in str(first)


def test_folder_that_cannot_be_written_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "esync", DEVICES, 30)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(runs, "save_summary", refuse)
    assert load_run(tmp_path / "esync").figures.throughput


def test_logs_moved_aside_are_mentioned(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aside = folder / "cloud1/cpu/earlier-20260101T120000"
    write_round(aside, 1, esync_round(1, 1.0))
    for _ in range(2):  # from the rounds, and from the summary
        assert str(aside) in str(load_run(folder).problems)
    assert summarize_logs(tmp_path) == 0
    assert str(aside) in capsys.readouterr().err
    for path in folder.glob("*/*/iter-*.txt"):  # what is left are the summary and the earlier logs
        path.unlink()
    assert str(aside) in str(load_network(tmp_path / "lenet")[1])


def test_rounds_in_a_folder_that_is_no_device_are_mentioned(folder: Path) -> None:
    write_round(folder / "cloud1/my gpu", 1, esync_round(1, 1.0))
    (folder / "cloud1/notes").mkdir()
    for _ in range(2):  # from the rounds, and from the summary
        (problem,) = load_run(folder).problems
        assert problem.startswith(f"skipped (foreign) {folder}/cloud1/my gpu: not a device's name (cpu, gpu0, ")


def test_runs_are_found_by_folders_and_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("esync", "esync@a-seed0", "esync@a-seed1", "sync"):
        write_run(tmp_path / "lenet" / name, DEVICES, 20)
    (tmp_path / "lenet/figures").mkdir()
    matches = find_runs([tmp_path])
    assert [run.folder.name for run in matches] == ["esync", "esync@a-seed0", "esync@a-seed1", "sync"]
    some = find_runs([f"{tmp_path}/lenet/*@a*", tmp_path / "lenet/esync@a-seed1"])
    assert [run.name for run in some] == ["a-seed0", "a-seed1"]
    monkeypatch.chdir(tmp_path / "lenet/esync@a-seed1")
    assert [run.name for run in find_runs(["."])] == ["a-seed1"]


def test_folders_without_a_run_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nowhere: there is no such folder"):
        find_runs([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="empty: there is no run in it"):
        find_runs([tmp_path / "empty"])
    with pytest.raises(RunError, match="empty: there is no run in it"):
        load_run(tmp_path / "empty")


@pytest.mark.parametrize("name", ["", ".hidden", "-flag", "a/b", "a b", "a@b", "x" * 61, "ä"])
def test_names_that_cannot_name_a_folder_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a run"):
        run_names.run_name(name)


def test_names_of_repeated_runs() -> None:
    assert [run_names.with_seed(name, 3) for name in ("base", "")] == ["base-seed3", "seed3"]
    assert [run_names.without_seed(name) for name in ("base-seed3", "seed3", "base", "x-seed")] == [
        "base",
        "",
        "base",
        "x-seed",
    ]
