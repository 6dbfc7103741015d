"""Jobs that end with their test, and a data set of a few samples."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import Launch
from sshd import MISSING, SSHD, Sshd

sys.path.append(str(Path(__file__).parents[1] / "data"))


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tiny_dataset

    folder = tmp_path_factory.mktemp("data")
    tiny_dataset.write(folder)
    return folder


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launch]]:
    """Start launchers; nothing of their jobs outlives the test."""
    with contextlib.ExitStack() as stack:

        def start(file: Path, *flags: str, **more: Any) -> Launch:
            job = Launch(tmp_path, file, *flags, **more)
            stack.callback(job.sweep)
            return job

        yield start


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A real sshd that stands for the machines left and right."""
    if SSHD is None:
        pytest.skip(MISSING)
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.close()
