"""Writing files atomically, and paths with `~`."""

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest

from esync.runtime.files import NoHomeError, expanded, write_atomically


def test_write_atomically_replaces_a_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "result.json"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["result.json"]


def test_write_atomically_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    taken = tmp_path / "result.json"
    taken.mkdir()
    with pytest.raises(OSError, match=r"result\.json"):
        write_atomically(taken, b"new")
    assert os.listdir(tmp_path) == ["result.json"]
    assert taken.is_dir()


def test_write_atomically_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "result.json", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "result.json").stat().st_mode & 0o777 == 0o640


def test_expanded_replaces_a_leading_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("~") == tmp_path
    assert expanded(Path("~/logs")) == tmp_path / "logs"
    assert expanded(f"~{getpass.getuser()}/logs").is_absolute()
    for other in ("logs/~", "./~/logs", "/logs", "log~s", "."):
        assert expanded(other) == Path(other)
    with pytest.raises(NoHomeError, match=r"~nobody-of-that-name/logs: this machine knows no home directory"):
        expanded("~nobody-of-that-name/logs")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("logs_tools.summarize", ["--base-dir={}/logs"]),
        ("logs_tools.plot", ["--base-dir={}/logs"]),
        ("logs_tools.sync_switch_report", ["{}/logs"]),
        ("esync.evaluate", ["--checkpoint-dir={}/logs", "--patience=1"]),
        ("esync.launch", ["{}/logs/cluster.yaml"]),
        ("esync.simulate", ["{}/logs/cluster.yaml"]),
        ("esync.sync_switch", ["search", "{}/logs/cluster.yaml", "--out={}/logs/out"]),
        ("esync.worker", ["--mode=local", "--data-dir={}/logs"]),
        ("esync.state_server", ["--port=0", "--certfile={}/logs/missing.pem", "--state-dir={}/logs"]),
    ],
)
def test_programs_expand_a_tilde_in_every_path_flag(tmp_path: Path, program: str, words: list[str]) -> None:
    """A shell does not expand `~` after `=`."""
    (tmp_path / "here").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", program, *(word.format("~") for word in words)],
        cwd=tmp_path / "here",
        env={**os.environ, "HOME": str(tmp_path / "home"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (1, 2)
    assert str(tmp_path / "home" / "logs") in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path / "here") == []
