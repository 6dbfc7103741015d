"""Extract the files of a Debian or Ubuntu package, without installing it and without root rights."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from esync import config

from .errors import DataError


@contextlib.contextmanager
def unpacked(package: str) -> Iterator[Path]:
    """Download a package from this machine's apt sources; yield a temporary folder of its files.

    Raises:
        DataError: the package does not exist, or apt-get or dpkg-deb is missing, fails, or takes too
            long.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise DataError(tool, "not on this machine")
    with tempfile.TemporaryDirectory(prefix="esync-fetch-") as name:
        room = Path(name)
        _download(package, room)
        files = room / "files"
        _run(["dpkg-deb", "-x", str(next(room.glob("*.deb"))), str(files)], room)
        yield files


def _download(package: str, room: Path) -> None:
    # As root, apt would switch to another user, who has no access to our temporary folder.
    apt = ["apt-get", "-qq", "-oAPT::Sandbox::User=root"]
    try:
        _run([*apt, "download", package], room)
    except DataError:  # package lists are often missing (fresh containers) or outdated; fetch new ones
        lists, cache = room / "lists", room / "cache"
        (lists / "partial").mkdir(parents=True)
        (cache / "archives" / "partial").mkdir(parents=True)
        apt += [f"-oDir::State::Lists={lists}", f"-oDir::Cache={cache}"]
        _run([*apt, "update"], room)
        _run([*apt, "download", package], room)


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=config.FETCH_PACKAGE_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise DataError(command[0], f"not done after {config.FETCH_PACKAGE_TIMEOUT:g} seconds") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise DataError(command[0], lines[-1] if lines else f"exit code {done.returncode}")
