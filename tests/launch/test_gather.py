"""Gathering logs from other machines, a device's folder as a whole or not at all."""

import json
import os
from pathlib import Path

import pytest

from esync.launch import gather
from esync.launch.remote_agent import Agent

NEW = {"cpu/iter-1.txt": '{"new": 1}', "cpu/run.json": "{}", "gpu0/iter-1.txt": "{}"}


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_gather_unpack_puts_logs_in_place_and_keeps_earlier_runs(tmp_path):
    host = tmp_path / "left"
    earlier = host / "cpu/earlier-20260101T000000"
    earlier.mkdir(parents=True)
    (earlier / "iter-9.txt").write_text("old")
    (host / "cpu/.lock").touch()
    gather.unpack(NEW, host)
    assert files(host) == {**NEW, "cpu/earlier-20260101T000000/iter-9.txt": "old"}
    assert os.listdir(tmp_path) == ["left"]


@pytest.mark.parametrize("moment", range(6))
def test_gather_unpack_interrupted_leaves_only_complete_folders(tmp_path, monkeypatch, moment):
    """Interrupted at each of the calls that change something on the disk."""
    host = tmp_path / "left"
    calls = 0

    def counted(real):
        def call(*words, **named):
            nonlocal calls
            calls += 1
            if calls > moment:
                raise OSError(28, "No space left on device")
            return real(*words, **named)

        return call

    monkeypatch.setattr(Path, "write_text", counted(Path.write_text))
    monkeypatch.setattr(gather.os, "fsync", counted(os.fsync))
    monkeypatch.setattr(gather.os, "replace", counted(os.replace))
    with pytest.raises(OSError, match="No space left"):
        gather.unpack(NEW, host)
    contents = files(host) if host.exists() else {}
    for device in {name.partition("/")[0] for name in contents}:
        assert {name for name in contents if name.startswith(device)} == {
            name for name in NEW if name.startswith(device)
        }
    assert len(contents) < len(NEW)
    assert os.listdir(tmp_path) in ([], ["left"])


@pytest.mark.parametrize(
    "name", ["../iter-1.txt", "/etc/passwd", "cpu/../../x", "cpu/a/b", ".ssh/x", "cpu/.lock", "cpu"]
)
def test_gather_unpack_with_suspicious_name_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="is not a name of a log"):
        gather.unpack({name: "x"}, tmp_path / "left")
    assert os.listdir(tmp_path) == []


def test_agent_gather_packs_only_results(tmp_path):
    host = tmp_path / "esync/left"
    for name in (
        "cpu/iter-1.txt",
        "cpu/run.json",
        "cpu/.iter-2.txt.77",
        "cpu/earlier-x/iter-9.txt",
        "cpu/weights.params",
    ):
        (host / name).parent.mkdir(parents=True, exist_ok=True)
        (host / name).write_text(name)
    request = {"do": "logs", "folder": str(host), "nonce_file": "processes/.lock", "nonce": "abc"}
    answer = Agent().answer(dict(request))
    packed = gather.texts_of(answer)
    assert packed == {"cpu/iter-1.txt": "cpu/iter-1.txt", "cpu/run.json": "cpu/run.json"}
    assert json.dumps(answer)

    (tmp_path / "esync/processes").mkdir()
    (tmp_path / "esync/processes/.lock").write_text("abc")  # launch's own folder, on a shared disk
    assert Agent().answer(dict(request)) == {"shared": True}
