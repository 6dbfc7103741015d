"""A PostgreSQL server of the tests' own.

It is a new cluster on a free port of this machine, run by an unprivileged user.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port


class MissingError(Exception):
    """There is no PostgreSQL here."""


def binaries() -> Path:
    """The folder of initdb and pg_ctl. Raises MissingError."""
    path = shutil.which("initdb")
    folders = [Path(path).parent] if path else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise MissingError("PostgreSQL is not installed (Debian: apt install postgresql)")


class Postgres:
    """A server that can be stopped and started again."""

    def __init__(self, folder: Path, port: int, user: str | None) -> None:
        self.url = f"postgres://tester@127.0.0.1:{port}/postgres"
        self._folder, self._port, self._user = folder, port, user

    def run(self, program: str, *words: str) -> None:
        subprocess.run(
            [binaries() / program, *words],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            user=self._user,
            cwd=self._folder,
            timeout=120,
        )

    def start(self) -> None:
        options = f"-p {self._port} -k {self._folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = str(self._folder / "log")
        self.run("pg_ctl", "-D", str(self._folder / "data"), "-l", log, "-o", options, "-w", "-t", "90", "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "-w", "stop")


@contextmanager
def cluster() -> Iterator[Postgres]:
    """Make one, run it, and leave nothing of it behind."""
    binaries()
    user = _unprivileged() if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="esync-postgres-"))  # short: names of sockets must be
    try:
        if user:
            shutil.chown(folder, user)
        postgres = Postgres(folder, free_port(), user)
        postgres.run("initdb", "-D", str(folder / "data"), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        postgres.start()
        try:
            yield postgres
        finally:
            postgres.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> str:
    """PostgreSQL refuses to run as root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise MissingError("there is no user postgres or nobody to run PostgreSQL as")
