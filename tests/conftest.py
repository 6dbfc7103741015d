"""What all tests have in common."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `long`, unless --long was given."""
    if config.getoption("--long"):
        return
    if long := [item for item in items if item.get_closest_marker("long")]:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


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
    """The documentation's site, built once for all tests of it."""
    folder = tmp_path_factory.mktemp("site") / "out"
    done = build_site(folder)
    assert done.returncode == 0, done.stderr
    return folder
