"""What all tests have in common."""

import contextlib
import fcntl
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from .support.site import build_site

# Its deadline is 200 ms of real time for an example: a busy machine misses it, whatever the example
# does.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --long, without which tests marked `long` are left out, and the amount of such a test."""
    parser.addoption(
        "--long",
        action="store_true",
        help="run the tests marked `long`, too: further variants, and what takes many minutes",
    )
    parser.addoption(
        "--schedules",
        type=int,
        default=10_000,
        help="schedules of each kind that tests/search runs with --long (default: %(default)s)",
    )


#: Parts of the names of tests that take long, the longest first.
SLOW = ("commands_that_are_marked_so_run[", "test_notebook_runs", "plan_over_ssh", "tests/launch/", "tests/cluster/")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `long`, unless --long was given; in parallel, let the slow ones start first."""
    if not config.getoption("--long") and (long := [item for item in items if item.get_closest_marker("long")]):
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    if (workerinput := getattr(config, "workerinput", None)) is not None:  # in a process of pytest-xdist
        items[:] = slow_first(items, workerinput["workercount"])


def slow_first(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Order tests for --dist worksteal, which gives each process a run of equal length: let it begin with slow ones."""
    places = {item: next((place for place, part in enumerate(SLOW) if part in item.nodeid), None) for item in items}
    slow = sorted((item for item in items if places[item] is not None), key=places.__getitem__)
    other_items = iter([item for item in items if places[item] is None])
    ordered: list[pytest.Item] = []
    for number in range(processes):
        length = (len(items) - len(ordered)) // (processes - number)
        run = slow[number::processes]
        ordered += [*run, *itertools.islice(other_items, max(0, length - len(run)))]
    return [*ordered, *other_items]


#: Tests during which a process of pytest-xdist ended, and lines about these processes.
_crashed: list[str] = []
_ends: list[str] = []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Note how a process of pytest-xdist ended, where that was not asked of it."""
    if error is not None:
        status: int | str = "unknown"
        with contextlib.suppress(AttributeError, subprocess.TimeoutExpired):  # execnet shows its process to nobody
            status = node.gateway._io.popen.wait(10)
        _ends.append(f"process {node.gateway.id} ended ({error}), exit status {status}")


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """Run a test once more whose process of pytest-xdist ended: the cause may be an earlier test's."""
    if crashitem not in _crashed:
        _crashed.append(crashitem)
        report.outcome = "rerun"  # as pytest-xdist's documentation shows it
        sched.mark_test_pending(crashitem)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which processes of pytest-xdist ended early, and what was run again for that."""
    for line in (*_ends, *(f"run again, because its process ended: {item}" for item in _crashed)):
        terminalreporter.write_line(line, yellow=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the tests marked `gpu` where MXNet sees no GPU."""
    if item.get_closest_marker("gpu"):
        from esync import mx  # imported late: it takes a second

        if not mx.context.num_gpus():
            pytest.skip("MXNet sees no GPU here")


def pytest_configure(config: pytest.Config) -> None:
    """Hide MXNet 1.9.1's warnings about its own use of old NumPy and SciPy names.

    They say nothing about a test.
    """
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:(mxnet|gluoncv).*")
    # A shell starts what runs in its background with SIGINT ignored, and so would every program
    # that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def code_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that is the current one; what a test loads from files of users is forgotten after it."""
    from esync.algorithms import ALGORITHMS, loading
    from esync.runtime import user_code

    names, modules = dict(ALGORITHMS), dict(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(user_code, "_files", {})
    monkeypatch.setattr(loading, "_sources", {})
    yield tmp_path
    ALGORITHMS.clear()
    ALGORITHMS.update(names)
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of a few samples, which is only read."""
    from .data import tiny_dataset

    folder = tmp_path_factory.mktemp("data")
    tiny_dataset.write(folder)
    return folder


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Mount a file system of 64 KiB, or of the size that the test is parametrized with.

    The test is skipped if none can be mounted.
    """
    folder = tmp_path / "small"
    folder.mkdir()
    size = getattr(request, "param", "64k")
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True)
    if mount.returncode:
        pytest.skip(f"a small disk cannot be mounted: {mount.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation's site, built once for all tests of it, in whichever process of pytest-xdist they run."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "site"
    with open(shared / "site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            done = build_site(shared / "unfinished")
            assert done.returncode == 0, done.stderr
            (shared / "unfinished").rename(folder)
    return folder
