"""What all tests have in common."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# Its deadline is 200 ms of real time for an example: a busy machine misses it, whatever the example
# does.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --long, without which the tests marked `long` are left out, and how much one of them does."""
    parser.addoption("--long", action="store_true", help="run the tests that take minutes, too (marked `long`)")
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


def pytest_configure(config: pytest.Config) -> None:
    """MXNet 1.9.1 warns about its own use of old NumPy and SciPy names: nothing that a test could show."""
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:(mxnet|gluoncv).*")
    # A shell starts what runs in its background with SIGINT ignored, and so would every program
    # that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of 64 KiB, or of the size that the test is parametrized with; skipped where none can be mounted."""
    folder = tmp_path / "small"
    folder.mkdir()
    size = getattr(request, "param", "64k")
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True)
    if mount.returncode:
        pytest.skip(f"a small disk cannot be mounted: {mount.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
