"""A result under its name is whole, or is the old one."""

import os
from pathlib import Path

import pytest

from esync.files import write_whole


def test_a_file_is_replaced_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "result.json"
    write_whole(path, b"old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["result.json"]


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    taken = tmp_path / "result.json"
    taken.mkdir()
    with pytest.raises(OSError, match=r"result\.json"):
        write_whole(taken, b"new")
    assert os.listdir(tmp_path) == ["result.json"]
    assert taken.is_dir()


def test_others_can_read_what_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "result.json", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "result.json").stat().st_mode & 0o777 == 0o640
