"""`report.html` in a real Chromium: opened as a file, pointed at, on a phone, on paper."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import PHONE

sys.path.append(str(Path(__file__).parents[1] / "reports"))
from test_report_page import logged

from esync.reports.comparison import compare_runs
from esync.reports.report_page.build import build_report
from esync.reports.report_page.page import report_html

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def asked(page) -> list[str]:
    """Addresses that the page has asked for."""
    addresses: list[str] = []
    page.context.on("request", lambda request: addresses.append(request.url))
    return addresses


@pytest.fixture
def six_runs(tmp_path) -> str:
    """Address of the report of esync with and without --overlap, three seeds each, 1,000 rounds."""
    runs = [logged(seed, overlap, rounds=1000, devices=3) for overlap in (False, True) for seed in (1, 2, 3)]
    path = tmp_path / "report.html"
    path.write_text(report_html(build_report(compare_runs(runs), "today")))
    assert path.stat().st_size < 2e6
    return path.as_uri()


def test_report_of_six_runs_draws_curves_with_bands_and_asks_nobody(page, photograph, six_runs, asked):
    page.goto(six_runs)
    page.wait_for_selector("figure svg.plot path.curve")
    first = page.locator("figure").first
    assert first.locator("path.curve").count() == first.locator("path.band").count() == 2
    assert page.locator("figure svg.plot").count() == page.locator("figure").count() > 4
    assert page.locator("table").first.locator("tbody tr").count() == 2
    assert "Test accuracy." in first.locator("svg.plot").get_attribute("aria-label")
    assert page.locator("figure .none").count() == 0  # what is shown without the script
    photograph("report")
    assert asked == [six_runs]
    assert page.complaints == []


def test_report_curve_follows_the_pointer_and_the_keyboard(page, six_runs):
    page.goto(six_runs)
    chart = page.locator("figure").first
    keys = chart.locator(".keys")
    last = keys.inner_text()
    assert "±" in last
    plot = chart.locator("svg.plot")
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
    assert chart.locator(".cursor").count() == 1
    pointed = keys.inner_text()
    assert pointed != last
    page.mouse.move(5, 5)
    assert keys.inner_text() == last
    plot.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert keys.inner_text() != last
    chart.get_by_role("button", name="over rounds").click()
    assert "at round 1000" in keys.inner_text()


def test_report_timeline_names_the_round_under_the_pointer(page, six_runs):
    page.goto(six_runs)
    timeline = page.locator("figure", has=page.locator("ul.key")).first
    plot = timeline.locator("svg.plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 15)
    readout = timeline.locator(".readout").inner_text()
    assert "one gpu0" in readout
    assert "rounds" in readout
    assert "computing" in readout


def test_report_tables_beside_charts_have_their_values(page, six_runs):
    page.goto(six_runs)
    chart = page.locator("figure").first
    chart.locator("summary").click()
    chart.locator("tbody tr").first.wait_for()
    assert "±" in chart.locator("tbody tr").nth(3).inner_text()


def test_report_on_a_phone_scrolls_only_downwards(page, six_runs):
    page.set_viewport_size(PHONE)
    page.goto(six_runs)
    page.wait_for_selector("figure svg.plot path.curve")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    widths = page.locator("figure svg.plot").evaluate_all("(all) => all.map((one) => one.viewBox.baseVal.width)")
    assert max(widths) <= PHONE["width"]  # drawn for this width: texts have their size


def test_report_on_paper_is_light_and_opens_what_is_folded(page, six_runs, tmp_path):
    page.emulate_media(color_scheme="dark")
    page.goto(six_runs)
    page.wait_for_selector("figure svg.plot path.curve")
    folded = "[...document.querySelectorAll('details.section')].map((one) => one.open)"
    assert set(page.evaluate(folded)) == {False}
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert set(page.evaluate(folded)) == {True}
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert set(page.evaluate(folded)) == {False}
    content = page.pdf(path=tmp_path / "report.pdf", format="A4", print_background=True)
    assert content.startswith(b"%PDF")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--card').trim()") == "#fff"


def test_report_runs_no_script_of_a_hostile_name(page, tmp_path, asked):
    owned = "document.title='owned'"
    evil = f'</script><img src=http://127.0.0.1:9/x onerror="{owned}"><script>{owned}</script>'
    run = logged(1, False)
    column = run.summary["one"]["gpu0"]
    hostile = replace(run, summary={evil: {"gpu0": column}}, folder=Path(evil), problems=(evil,))
    path = tmp_path / "report.html"
    path.write_text(report_html(build_report(compare_runs([hostile, logged(2, False)], [evil, "b"]), evil)))
    page.goto(path.as_uri())
    page.wait_for_selector("figure svg.plot path.curve")
    assert "owned" not in page.title().replace(evil, "")
    assert page.locator("img").count() == 0
    timeline = page.locator("figure", has=page.locator("ul.key")).first
    timeline.locator("svg.plot").focus()
    page.keyboard.press("ArrowRight")
    assert evil in timeline.locator(".readout").inner_text()
    assert asked == [path.as_uri()]
    assert page.complaints == []
