"""The state server for tests: in this process over real HTTP, or as a process of its own."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from calling import ROOT, ServerProcess, send

from esync import state_server
from SimpleStateServer.server import jobs


@pytest.fixture(scope="session")
def _listening() -> Iterator[str]:
    server = state_server.create_server("127.0.0.1", 0)
    threading.Thread(target=server.run, daemon=True).start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.task_dispatcher.shutdown()


@pytest.fixture
def job(monkeypatch) -> jobs.Job:
    """The default job, before its first /init/."""
    fresh = jobs.Job()
    monkeypatch.setattr(jobs, "default", fresh)
    return fresh


@pytest.fixture
def url(_listening, job) -> str:
    """The address of a state server that runs in this process and has not been initialised."""
    return _listening


@pytest.fixture
def begun(url) -> str:
    """The same with a job of three workers, all of known speed."""
    assert send(f"{url}/init/", {"num_workers": 3, "epsilon": 0.02})[:2] == (200, None)
    for rank in range(3):
        assert send(f"{url}/apply/", {"r": rank, "k": 0, "c": 0.1 + rank, "te": 1e9})[:2] == (200, {"ready": 0})
    return url


@pytest.fixture
def start_process() -> Iterator[Callable[..., ServerProcess]]:
    """Start servers as processes; they end with the test."""
    with contextlib.ExitStack() as stack:

        def start(*command: str, cwd: Path = ROOT) -> ServerProcess:
            server = ServerProcess(*command, cwd=cwd)
            stack.callback(server.process.kill)
            return server

        yield start
