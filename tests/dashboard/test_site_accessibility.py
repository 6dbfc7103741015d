"""The documentation's site for those who use a keyboard, a screen reader or strong contrasts."""

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.accessibility import COLOURS, moving, tab_stops, unreachable, violations

#: The start, a how-to with code and tables, generated tables, the API, figures and wide tables.
PAGES = [
    "",
    "start/",
    "how-to/launch/",
    "how-to/dashboard/",
    "how-to/migration/",
    "reference/flags/",
    "reference/api/",
    "reference/modes/",
    "results/esync/",
]


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder; requests are not logged."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served: its search needs a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def search(page, words: str) -> None:
    page.keyboard.press("/")
    page.keyboard.type(words)
    page.wait_for_selector(".md-search-result__item")


@pytest.mark.parametrize(("scheme", "rules"), [("light", []), ("dark", COLOURS)])
def test_site_pages_violate_no_guideline(page, address, scheme, rules):
    """The schemes differ in their colours only."""
    page.emulate_media(color_scheme=scheme)
    results = {}
    for place in PAGES:
        page.goto(address + place)
        assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
        assert page.evaluate("document.documentElement.lang") == "en"
        results[place] = violations(page, rules=rules)
    assert {place: result for place, result in results.items() if result} == {}
    assert page.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_site_with_open_search_violates_no_guideline(page, address, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(address)
    search(page, "compression")
    assert violations(page) == []


@pytest.mark.parametrize("place", ["", "reference/modes/"])
def test_site_page_is_walked_through_by_tab_and_every_stop_is_seen(page, address, place):
    page.goto(address + place)
    stops = list(tab_stops(page))
    assert [stop for stop in stops if not (stop["outlined"] and stop["seen"])] == []
    assert stops[0]["name"] == "Skip to content"
    assert unreachable(page, stops) == []


def test_site_wide_table_is_scrolled_by_keyboard(page, address):
    page.set_viewport_size({"width": 700, "height": 800})
    page.goto(address + "reference/modes/")
    page.wait_for_selector(".md-typeset__scrollwrap[role=region]")
    box = page.locator(".md-typeset__scrollwrap[role=region]").first
    assert box.get_attribute("aria-label").startswith("Table: ")
    box.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)
    assert box.evaluate("box => box.scrollLeft") > 0


def test_site_with_reduced_motion_moves_nothing(page, address):
    page.goto(address)
    assert moving(page) == []
    page.emulate_media(reduced_motion="no-preference")
    assert moving(page) != []  # there is something to be kept from moving
