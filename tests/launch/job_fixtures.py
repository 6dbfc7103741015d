"""Fixtures of tests that launch jobs: launchers that end with their test, a data set of a few samples."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import Launch


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

        def start(file: Path, *flags: str, **options: Any) -> Launch:
            job = Launch(tmp_path, file, *flags, **options)
            stack.callback(job.sweep)
            return job

        yield start
