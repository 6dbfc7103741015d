"""The state server for tests: in this process over real HTTP, or as a process of its own."""

import contextlib
import math
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import django
import pytest
from calling import ROOT, ServerProcess, begin, send
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application

from esync import config
from esync.state_server.registry import JobRegistry
from esync.state_server.service import Service, service

STATE = tempfile.TemporaryDirectory(prefix="esync-state-")
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("ESYNC_STATE_DIR", STATE.name)
    os.environ["DJANGO_SETTINGS_MODULE"] = "esync.state_server.settings"
    django.setup()


class QuietHandler(WSGIRequestHandler):
    """Writes no line per request."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="session")
def running() -> Iterator[Service]:
    """The parts of the state server in this process."""
    service.start(Path(STATE.name))
    assert service.history.ready.wait(60)
    yield service
    service.close()


@pytest.fixture(scope="session")
def _listening(running) -> Iterator[str]:
    server = ThreadedWSGIServer(("127.0.0.1", 0), QuietHandler)
    server.set_app(get_wsgi_application())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture
def jobs(running, monkeypatch) -> JobRegistry:
    """The jobs of the state server in this process: none yet, and no journals."""
    fresh = JobRegistry(history=running.history)
    monkeypatch.setattr(running, "jobs", fresh)
    return fresh


@pytest.fixture
def never_forgotten(monkeypatch) -> None:
    """Keep jobs whose test has times of its own, from 0 on, where the machine has been up for days."""
    monkeypatch.setattr(config, "JOB_FORGOTTEN", math.inf)


@pytest.fixture
def url(_listening, jobs) -> str:
    """The address of a state server that runs in this process and has no jobs."""
    return _listening


@pytest.fixture
def default_job(url) -> str:
    """The same with a default job of three workers, all of known speed."""
    assert send(f"{url}/init/", {"num_workers": 3, "epsilon": 0.02})[:2] == (200, None)
    for rank in range(3):
        assert send(f"{url}/apply/", {"r": rank, "k": 0, "c": 0.1 + rank, "te": 1e9})[:2] == (200, {"ready": 0})
    return url


@pytest.fixture
def mine(url) -> str:
    """The address of job `mine` of the JSON API, with three workers, all of known speed."""
    return begin(url, "mine", speeds=[0.1, 1.1, 2.1])


@pytest.fixture
def start_process(tmp_path) -> Iterator[Callable[..., ServerProcess]]:
    """Start servers as processes, each with a state folder of its own; they end with the test."""
    with contextlib.ExitStack() as stack:
        count = 0

        def start(*command: str, cwd: Path = ROOT, **environment: str) -> ServerProcess:
            nonlocal count
            count += 1
            environment.setdefault("ESYNC_STATE_DIR", str(tmp_path / f"state-{count}"))
            server = ServerProcess(*command, cwd=cwd, **environment)
            stack.callback(server.process.kill)
            return server

        yield start
