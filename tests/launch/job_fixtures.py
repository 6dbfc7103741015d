"""A fixture of tests that launch jobs: launchers that end with their test."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import Launch, Start


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Start]:
    """Start launchers; nothing of their jobs outlives the test."""
    with contextlib.ExitStack() as stack:

        def start(*words: Any, **options: Any) -> Launch:
            job = Launch(tmp_path, *words, **options)
            stack.callback(job.sweep)
            return job

        yield start
