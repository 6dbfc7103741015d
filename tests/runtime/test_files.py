"""Writing files atomically, and paths with `~`."""

import errno
import fcntl
import getpass
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from esync.data.fetch import _locked_folder
from esync.launch.folders import lock_folder
from esync.runtime import files
from esync.runtime.files import NoHomeError, expanded, flush_folder, memory_descriptor, through_memory, write_atomically
from esync.runtime.memory_file import MemoryFile
from esync.state_server.state_folder import StateFolder
from esync.training.round_log import claim

from ..support.forked import ForkedProgram


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


def test_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """Nor is a device: with the rights to do so, `--json /dev/null` would break the machine for everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, b"content")
        assert os.read(reader, 100) == b"content"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_link_to_an_open_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    output, link = tmp_path / "output", tmp_path / "stdout"
    with open(output, "wb") as file:
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")  # as /dev/stdout is
        write_atomically(link, b"content")
    assert link.is_symlink()
    assert output.read_bytes() == b"content"


@pytest.mark.parametrize("name", [".", "folder"])
def test_folder_in_the_place_of_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IsADirectoryError) as caught:
        write_atomically(Path(name), b"content")
    assert caught.value.filename == name


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
    for other in ("logs/~", "/logs", "log~s", "."):
        assert expanded(other) == Path(other)
    assert expanded(expanded("./~nobody/logs")) == Path.cwd() / "~nobody/logs"
    with pytest.raises(NoHomeError, match=r"~nobody-of-that-name/logs: this machine knows no home directory"):
        expanded("~nobody-of-that-name/logs")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("logs_tools.summarize", ["--base-dir={}/logs"]),
        ("logs_tools.plot", ["--log-dir={}/logs"]),
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
    log, environment = tmp_path / "log", {**os.environ, "HOME": str(tmp_path / "home")}
    command = ["-m", program, *(word.format("~") for word in words)]
    assert ForkedProgram(command, environment, log, tmp_path / "here").wait(120) in (1, 2)
    assert str(tmp_path / "home" / "logs") in log.read_text()
    assert "Traceback" not in log.read_text()
    assert os.listdir(tmp_path / "here") == []


def refuse(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, number: int, only_folders: bool = False) -> None:
    """Let a function fail with an error number."""
    real = getattr(module, name)

    def call(*arguments: Any, **named: Any) -> Any:
        if only_folders and not stat.S_ISDIR(os.fstat(arguments[0]).st_mode):
            return real(*arguments, **named)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, name, call)
    monkeypatch.setattr(files, "_warned", set())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_folders_on_file_system_without_locks_are_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    refuse(monkeypatch, fcntl, "flock", number)
    with caplog.at_level(logging.WARNING):
        StateFolder(tmp_path / "state").close()
        for _ in range(2):
            lock_folder(tmp_path / "logs", tmp_path).close()
        claim(tmp_path / "rounds", "cpu", overwrite=False)[1].close()
        with _locked_folder(tmp_path / "data"):
            pass
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 4
    assert all(
        f"cannot be locked ({os.strerror(number)}): make sure yourself that no other " in line for line in warnings
    )


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_files_in_folders_that_cannot_be_flushed_are_written_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    refuse(monkeypatch, os, "fsync", number, only_folders=True)
    for _ in range(2):
        flush_folder(tmp_path)
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path} cannot be flushed ({os.strerror(number)}): what is written there may not survive a power failure"
    ]
    refuse(monkeypatch, os, "fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        flush_folder(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_write_atomically_without_renaming_copies_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    refuse(monkeypatch, os, "replace", number)
    write_atomically(tmp_path / "result.json", b"new")
    assert (tmp_path / "result.json").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["result.json"]
    assert "cannot be renamed" in caplog.text


@pytest.mark.parametrize("number", [0, errno.EACCES, errno.ENOSYS, errno.EPERM])
def test_memory_without_memfd_is_found_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    if number:
        refuse(monkeypatch, os, "memfd_create", number)
    with through_memory(tmp_path / "model") as path:
        path.write_bytes(b"weights")
    assert (tmp_path / "model").read_bytes() == b"weights"
    name = f"esync-test-{number}"
    memory = MemoryFile.create(name, 4096)
    other = MemoryFile(os.dup(memory.descriptor), 4096)
    memory.memory[0] = 7
    assert other.memory[0] == 7
    assert memory.hold(1)
    find = "from esync.runtime.memory_file import MemoryFile; print(MemoryFile.find('NAME').memory[0])".replace(
        "NAME", name
    )
    assert subprocess.run([sys.executable, "-c", find], capture_output=True, text=True).stdout == "7\n"
    for file in (memory, other):
        file.close()


def test_memory_holds_no_program() -> None:
    """So that it may be made where the system refuses other memory (vm.memfd_noexec=2)."""
    descriptor = memory_descriptor("esync-test")
    executable = os.fstat(descriptor).st_mode & 0o111
    os.close(descriptor)
    assert not executable or tuple(map(int, os.uname().release.split(".")[:2])) < (6, 3)
