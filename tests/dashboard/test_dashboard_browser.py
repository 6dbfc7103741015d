"""The dashboard in a real Chromium."""

import re
import socket
import time

import pytest
import tiny_dataset
from calling import begin, post, report
from launching import description, write

from tests.support.ports import free_port

pytestmark = pytest.mark.timeout(300)  # 25 s where nothing else runs


def count(page, selector: str) -> int:
    return page.locator(selector).count()


def until(page, condition: str, limit: float = 60) -> None:
    """Wait for an expression to be true.

    Playwright's own way would need eval, which the page forbids.
    """
    end = time.monotonic() + limit
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(50)


def open_tables(page) -> None:
    """Open the tables beside the charts."""
    for summary in page.locator("article summary").all():
        if summary.is_visible():
            summary.click()


def test_dashboard_shows_a_running_training_live(page, photograph, launch, tmp_path):
    port = free_port()
    tiny_dataset.write(tmp_path / "data")
    content = description([0.06, 0.15, 0.5], local_lr=0.01, data_dir=str(tmp_path / "data"), log_dir="logs")
    content["state_server"]["port"] = port
    job = launch(write(tmp_path / "cluster.yaml", content))
    job.until(lambda: _listens(port))
    page.goto(f"http://127.0.0.1:{port}/")  # as a person would type it
    assert page.url.endswith("/dashboard/")

    page.wait_for_selector("#workers tbody tr:nth-child(3)", timeout=120_000)
    until(page, "document.querySelector('#verdict').textContent.includes('slowest is worker 2')")
    page.wait_for_selector("tr.slowest")
    assert "worker 2" in page.locator("tr.slowest").inner_text()
    states = "['computing', 'waiting', 'exchanging']"  # on a busy machine a worker may be silent for a moment
    until(page, f"[...document.querySelectorAll('td.state')].every(cell => {states}.includes(cell.innerText))")

    for chart in ("timeline", "throughput", "traffic", "logged"):
        page.wait_for_selector(f"#{chart} canvas")
    label = page.locator("#logged [role=img]").first.get_attribute("aria-label")
    assert re.fullmatch(r"loss: [\d.]+ after \d:\d\d", label)
    open_tables(page)
    before = {chart: count(page, f"#{chart} tbody tr") for chart in ("timeline", "throughput", "traffic")}
    assert min(before.values()) > 0
    label = page.locator("#throughput [role=img]").get_attribute("aria-label")
    assert re.fullmatch(r"Throughput in samples per second: [\d.]+ samples per second after \d:\d\d", label)
    for chart, rows in before.items():
        if chart == "timeline":  # has the last rounds only
            continue
        until(page, f"document.querySelectorAll('#{chart} tbody tr').length > {rows}")
    assert page.locator("#pulse").inner_text() == "live"

    # Figures of this training: three speeds, and an efficiency that is a share.
    speed = "parseFloat(document.querySelectorAll('#workers td:nth-child(3)')[{}].innerText)"
    fast, middle, slow = (speed.format(rank) for rank in range(3))
    until(page, f"{fast} > {middle} && {middle} > {slow} && {slow} > 0")
    efficiency = page.locator("#tiles > div", has_text="efficiency").locator("dd").first.inner_text()
    assert 0 < int(efficiency.split()[0]) <= 100

    page.wait_for_selector("#accuracy canvas", timeout=120_000)  # evaluated at the lowest priority
    until(page, "document.querySelector('#tiles > div:last-child dd').textContent.includes('%')")
    until(page, r"/recall\/\d[01]/.test(document.querySelector('#parts').textContent)")  # a class and its recall
    page.locator("#timeline .u-over").hover(position={"x": 300, "y": 20})
    until(page, "document.querySelector('#timeline .readout').textContent.includes('worker 0')")
    page.mouse.move(0, 0)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = false)")
    assert page.complaints == []
    photograph("training")
    assert page.complaints == []

    job.process.terminate()  # and the state server with it
    page.wait_for_selector("#trouble:not([hidden])")
    assert "does not answer" in page.locator("#trouble").inner_text()
    assert count(page, "#workers tbody tr") == 3  # what was known stays


def test_dashboard_asks_for_the_token_and_keeps_it_out_of_the_address(page, photograph, start_process):
    server = start_process(ESYNC_TOKEN="a-secret-token")
    page.goto(server.url + "/dashboard/")
    page.wait_for_selector("#login:not([hidden])")
    assert page.evaluate("document.activeElement.id") == "token"
    photograph("login")
    page.keyboard.type("a-wrong-token")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#login-error').textContent.includes('not this server')")
    assert page.evaluate("document.activeElement.id") == "token"
    page.keyboard.type("a-secret-token")
    page.keyboard.press("Enter")

    page.wait_for_selector("#empty:not([hidden])")
    assert server.url.removeprefix("http://") in page.locator("#command").inner_text()
    photograph("empty")
    assert not page.locator("#login").is_visible()
    page.reload()
    page.wait_for_selector("#empty:not([hidden])")
    assert "token" not in page.url
    assert page.context.cookies() == []
    page.get_by_role("button", name="Forget token").click()
    page.wait_for_selector("#login:not([hidden])")
    # What Chromium itself says of the answers 401 is all that it complains about.
    assert [text for text in page.complaints if "401" not in text] == []


def test_dashboard_shows_another_metric_by_its_name(page, photograph, start_process):
    server = start_process()
    jobs = {name: begin(server.url, name, speeds=[0.1, 0.4]) for name in ("language", "images", "photographs")}
    for number in range(1, 7):
        for name, job in jobs.items():
            body = report(0, number, accuracy=0.1 * number, accuracy_round=number)
            if name == "language":
                body |= {"accuracy": 120.0 - 11.125 * number, "metric": "perplexity", "goal": "min"}
            assert post(f"{job}/report", body)[0] == 200
        time.sleep(0.2)
    assert post(f"{jobs['images']}/end", {"reason": "done"})[0] == 200
    page.goto(server.url + "/dashboard/")
    page.get_by_role("link", name="language").click()
    until(page, "document.querySelector('#accuracy-title').textContent === 'Perplexity'")
    page.wait_for_selector("#accuracy canvas")
    tile = "#tiles > div:last-child"
    assert page.locator(f"{tile} dt").inner_text().lower() == "perplexity"
    assert page.locator(f"{tile} dd").first.inner_text().strip() == "53.25"
    label = page.locator("#accuracy [role=img]").get_attribute("aria-label")
    assert re.fullmatch(r"Perplexity: 53\.25 after 0:0\d", label)
    photograph("metric")
    page.get_by_role("link", name="photographs").click()
    until(page, "document.querySelector('#accuracy-title').textContent === 'Test accuracy'")
    assert page.locator(f"{tile} dd").first.inner_text().strip() == "60.0 %"

    # Ended ones: a chart has one metric.
    assert post(f"{jobs['language']}/end", {"reason": "done"})[0] == 200
    page.wait_for_selector("#runs tbody tr:nth-child(2)")
    best = page.locator("#runs tbody td:last-child").all_inner_texts()
    assert sorted(best) == ["accuracy 60.0 %", "perplexity 53.25"]
    boxes = {row.locator("b").inner_text(): row.locator("input") for row in page.locator("#runs tbody tr").all()}
    assert boxes["images"].is_checked()
    assert boxes["language"].is_disabled()
    boxes["images"].uncheck()
    boxes["language"].check()
    until(page, "document.querySelector('#comparison [role=img]').getAttribute('aria-label').startsWith('Perplexity')")
    assert boxes["images"].is_disabled()
    assert "another metric, accuracy" in boxes["images"].get_attribute("title")
    assert page.complaints == []


def test_dashboard_switches_jobs_by_keyboard_and_compares_ended_ones(page, photograph, server):
    page.goto(server.url + "/dashboard/")
    until(page, "document.querySelector('#job-name').textContent === 'third'")  # the one that is running

    page.wait_for_selector("#runs tbody tr:nth-child(2)")
    page.wait_for_selector("#comparison canvas")
    names = page.locator("#comparison .u-legend .u-series").all_inner_texts()
    assert [any(name in text for text in names) for name in ("first", "second", "third")] == [True, True, False]
    photograph("comparison")

    # From the top with the Tab key alone: every stop is seen, and a job and a checkbox can be used.
    stops = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(40):
        page.keyboard.press("Tab")
        stop = page.evaluate(
            "() => { const one = document.activeElement; const looks = getComputedStyle(one);"
            " return [one.tagName, one.textContent.trim().slice(0, 20) || one.getAttribute('aria-label') || '',"
            " looks.outlineStyle + looks.outlineWidth]; }"
        )
        if stop[0] == "BODY":
            break
        assert stop[2] == "solid3px", stop
        stops.append(stop[:2])
        if stop[1] == "first":
            page.keyboard.press("Enter")
            until(page, "document.querySelector('#job-name').textContent === 'first'")
        if stop[0] == "INPUT" and page.locator("#runs input:checked").count() == 2:
            page.keyboard.press("Space")
            until(page, "document.querySelectorAll('#comparison .u-legend .u-series').length === 2")
    assert stops[0][1] == "Skip to the job"
    assert ["A", "third"] in stops
    assert ["SUMMARY", "As a table"] in stops
    assert "ended: done after 6 rounds" in page.locator("#job-state").inner_text()
    assert page.title() == "first: round 6 – ESync"
    assert page.complaints == []


def test_dashboard_opens_the_job_named_in_the_address_hash(page, start_process):
    server = start_process()
    for name in ("first", "main", "second"):
        begin(server.url, name, speeds=[0.1, 0.4])
    shows = "document.querySelector('#job-name').textContent === '{}'"
    page.goto(server.url + "/dashboard/#job=100%")  # no job, and a % that escapes nothing
    until(page, shows.format("second"))
    page.goto(server.url + "/dashboard/#job=%66irst")
    until(page, shows.format("first"))
    asked = []
    page.on("response", lambda response: asked.append(response.url))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the job"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    asked.clear()
    end = time.monotonic() + 60
    while sum(url.endswith("/api/v1/jobs") for url in asked) < 3:  # it has looked again
        assert time.monotonic() < end
        page.wait_for_timeout(50)
    assert page.evaluate(shows.format("first"))
    assert page.url.endswith("#job=%66irst")
    assert not page.locator("#trouble").is_visible()
    assert page.complaints == []


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
