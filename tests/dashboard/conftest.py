"""Chromium, driven by Playwright; state servers and real trainings to look at."""

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / name) for name in ("state_server", "launch", "data")]

from calling import ServerProcess, begin, post, report  # noqa: E402
from launching import Launch  # noqa: E402

#: The pictures that the tests take; git ignores them.
SCREENSHOTS = TESTS.parent / "screenshots"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser():
    """Start Chromium, once per module.

    During a whole session, Playwright's event loop would keep Django from working in this thread.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("Playwright is not installed: pip install -e .[dev]")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    """A page; `page.complaints` is what it has complained about on its console."""
    context = browser.new_context(viewport=DESKTOP, color_scheme="light", reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.complaints = []
    page.on("console", lambda message: message.type in ("error", "warning") and page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    yield page
    context.close()


@pytest.fixture
def photograph(page) -> Callable[[str], None]:
    """Take pictures of the whole page: light, dark, and on a phone."""
    SCREENSHOTS.mkdir(exist_ok=True)

    def take(name: str) -> None:
        for look, scheme, size in (("light", "light", DESKTOP), ("dark", "dark", DESKTOP), ("phone", "light", PHONE)):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size(size)
            page.evaluate("scrollTo(0, 0)")
            page.wait_for_timeout(300)
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], f"too wide: {look}"
            page.screenshot(path=SCREENSHOTS / f"{name}-{look}.png", full_page=True)
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(DESKTOP)

    return take


@pytest.fixture
def start_process(tmp_path) -> Iterator[Callable[..., ServerProcess]]:
    """Start state servers; they end with the test."""
    with contextlib.ExitStack() as stack:

        def start(**environment: str) -> ServerProcess:
            state = {"ESYNC_STATE_DIR": str(tmp_path / "state"), **environment}
            server = ServerProcess("-m", "esync.state_server", "--port", "0", **state)
            stack.callback(server.process.wait)
            stack.callback(server.process.kill)
            return server

        yield start


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launch]]:
    """Start launchers; nothing of their jobs outlives the test."""
    with contextlib.ExitStack() as stack:

        def start(file: Path, *flags: str) -> Launch:
            job = Launch(tmp_path, file, *flags)
            stack.callback(job.sweep)
            return job

        yield start


@pytest.fixture
def server(start_process):
    """A state server with a job that is running, `third`, and two that have ended, `first` and `second`."""
    server = start_process()
    jobs = {name: begin(server.url, name, speeds=[0.1, 0.4]) for name in ("first", "second", "third")}
    for number in range(1, 7):
        for job in jobs.values():
            for rank in range(2):
                body = report(rank, number, seconds=0.4, compute=0.3, wait=0.05, exchange=0.05)
                if rank == 0:
                    body |= {"accuracy": 0.1 * number, "accuracy_round": number}
                assert post(f"{job}/report", body)[0] == 200
        time.sleep(0.1)
    for name in ("first", "second"):
        assert post(f"{jobs[name]}/end", {"reason": "done after 6 rounds"})[0] == 200
    return server
