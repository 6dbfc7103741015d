"""What the tests of launch have: launchers, machines; and plans in this process."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "launch"))
sys.path.append(str(Path(__file__).parents[1] / "data"))

from job_fixtures import launch  # noqa: F401


class SameProcess(Executor):
    """Run every task at once, in this process."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Return a future that has its result already."""
        future: Future[Any] = Future()
        future.set_result(work(*arguments, **options))
        return future


@pytest.fixture(scope="module")
def same_process() -> Iterator[None]:
    """Simulate in this process: a pool's processes import the package first, which takes longer than a plan."""

    @contextlib.contextmanager
    def pool(*_: object) -> Iterator[Executor]:
        yield SameProcess()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("esync.planning.ranking.pool", pool)
        yield
