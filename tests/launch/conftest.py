"""Jobs that end with their test, and an sshd."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_fixtures import launch  # noqa: F401
from sshd import MISSING, SSHD, Sshd

sys.path.append(str(Path(__file__).parents[1] / "data"))


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A real sshd that stands for the machines left and right."""
    if SSHD is None:
        pytest.skip(MISSING)
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.close()
