"""Dashboard and `report.html` for those who use a keyboard, a screen reader or strong contrasts."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from calling import post, report
from test_dashboard_browser import until

sys.path.append(str(Path(__file__).parents[1] / "reports"))
from test_report_page import logged

from esync.reports.comparison import compare_runs
from esync.reports.report_page.build import build_report
from esync.reports.report_page.page import report_html
from tests.support.accessibility import boxes_without_keyboard, moving, tab_stops, unreachable, violations

#: Whether each chart that is shown has a label with figures in it, and a table of them.
CHARTS = """() => [...document.querySelectorAll('.chart')].filter((one) => one.checkVisibility()).map((one) => ({
    label: one.querySelector('[role=img]').getAttribute('aria-label'),
    rows: one.querySelectorAll('details tbody tr').length,
}))"""
#: Levels of the headings that are shown.
HEADINGS = """() => [...document.querySelectorAll('h1, h2, h3, h4')].filter((one) => one.checkVisibility())
    .map((one) => Number(one.tagName[1]))"""


@pytest.fixture
def report_address(tmp_path) -> str:
    """A report of esync with and without --overlap."""
    comparison = compare_runs(
        [logged(seed, overlap, rounds=100, devices=3) for overlap in (False, True) for seed in (1, 2)]
    )
    path = tmp_path / "report.html"
    path.write_text(report_html(build_report(comparison, "today")))
    return path.as_uri()


def open_job(page, server, name: str) -> None:
    page.goto(f"{server.url}/dashboard/#job={name}")
    for what in ("#comparison canvas", "#timeline canvas", "#throughput canvas", "#accuracy canvas", "#events li"):
        page.wait_for_selector(what)
    open_all(page)


def open_report(page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("figure svg.plot path.curve")
    open_all(page)


def open_all(page) -> None:
    """Unfold everything; scripts hear of it later."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.wait_for_timeout(200)


@pytest.fixture(params=["dashboard", "report"])
def shown(request, page) -> str:
    """What is opened: the dashboard of a job, or a report."""
    if request.param == "dashboard":
        open_job(page, request.getfixturevalue("server"), "third")
    else:
        open_report(page, request.getfixturevalue("report_address"))
    return request.param


def test_page_is_walked_through_by_tab_and_every_stop_is_seen(page, shown):
    stops = list(tab_stops(page))
    assert [stop for stop in stops if not (stop["outlined"] and stop["seen"] and stop["whole"])] == []
    assert unreachable(page, stops) == []
    assert boxes_without_keyboard(page) == []


def test_charts_have_their_figures_as_text(page, shown):
    charts = page.evaluate(CHARTS)
    assert len(charts) == 5 if shown == "dashboard" else len(charts) > 4
    for chart in charts:
        assert any(letter.isdigit() for letter in chart["label"]), chart
        assert chart["rows"] > 0, chart
    if shown == "dashboard":
        assert "worker 1 · round 6 · 7 local iterations · compute 0.30 s" in charts[0]["label"]


def descends_by_one(levels: list[int]) -> bool:
    return levels[0] == 1 and all(below <= above + 1 for above, below in pairwise(levels))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dashboard_violates_no_guideline(page, server, scheme):
    page.emulate_media(color_scheme=scheme)
    for name in ("third", "first"):
        open_job(page, server, name)
        assert violations(page, "best-practice") == []
    assert page.evaluate("document.documentElement.lang") == "en"
    until(page, "document.title === 'first: round 6 – ESync'")
    assert descends_by_one(page.evaluate(HEADINGS))
    server.process.kill()  # what is shown is old now, and still to be read
    page.wait_for_selector("body.stale")
    page.wait_for_selector("#trouble:not([hidden])")
    assert violations(page, "best-practice") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dashboard_before_the_first_job_violates_no_guideline(page, start_process, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(start_process(ESYNC_TOKEN="a-secret-token").url + "/dashboard/")
    page.wait_for_selector("#login:not([hidden])")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#login-error').textContent !== ''")
    assert violations(page, "best-practice") == []
    page.keyboard.type("a-secret-token")
    page.keyboard.press("Enter")
    page.wait_for_selector("#empty:not([hidden])")
    assert violations(page, "best-practice") == []


def test_dashboard_announces_what_happens_and_nothing_else(page, server):
    open_job(page, server, "third")
    assert page.locator("#news").inner_text() == ""  # what was before is no news
    page.evaluate("""() => {
        window.announced = [];
        for (const one of document.querySelectorAll('[role=status], [role=alert], [aria-live]')) {
            const observer = new MutationObserver(() => announced.push(one.textContent));
            observer.observe(one, {childList: true, subtree: true, characterData: true});
        }
    }""")
    asked = []
    page.on("response", lambda response: asked.append(response.url))
    job = f"{server.url}/api/v1/jobs/third"
    for number in (7, 8):
        assert post(f"{job}/report", report(0, number, seconds=0.4, compute=0.3, wait=0.05, exchange=0.05))[0] == 200
    assert post(f"{job}/end", {"reason": "enough"})[0] == 200
    until(page, "document.querySelector('#news').textContent !== ''")
    page.wait_for_timeout(1500)
    assert page.evaluate("announced") == ["third: ended: enough"]
    server.process.kill()
    page.wait_for_selector("#trouble:not([hidden])")
    until(page, "document.querySelector('#pulse-age').textContent.includes(' s ago')")
    page.wait_for_timeout(1500)
    assert page.evaluate("announced.filter((words) => words === 'no answer').length") == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_violates_no_guideline(page, report_address, scheme):
    page.emulate_media(color_scheme=scheme)
    open_report(page, report_address)
    assert violations(page, "best-practice") == []
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.title().endswith(" – ESync")
    assert descends_by_one(page.evaluate(HEADINGS))


def test_report_announces_the_values_that_arrow_keys_lead_to(page, report_address):
    open_report(page, report_address)
    chart = page.locator("figure").first
    chart.locator("svg.plot").focus()
    before = chart.get_by_role("status").inner_text()
    page.keyboard.press("ArrowRight")
    assert chart.get_by_role("status").inner_text() != before


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_dashboard_and_report_move_nothing(page, server, report_address, motion):
    page.emulate_media(reduced_motion=motion)
    open_job(page, server, "third")
    assert moving(page) == []
    open_report(page, report_address)
    assert moving(page) == []
